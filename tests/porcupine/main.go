// Judges the histories of chaos campaigns with porcupine (https://github.com/anishathalye/porcupine), a checker of
// linearizability: `judge FOLDER`. A history is right if there is an order of all acquires and ends of tenures that the
// times allow and the lock's model admits. It is written by the campaigns if REDLOCK_HISTORY names a folder.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// How long the judgement of one part may take.
const patience = time.Minute

// The number of histories, tenures and parts that were judged.
type total struct {
	histories, tenures, parts int
}

// The first part of a history for which no order is right, or none was found in time.
type fault struct {
	result porcupine.CheckResult
	part   []porcupine.Operation
	info   porcupine.LinearizationInfo
	model  porcupine.Model
}

// Judges one history. Returns the number of its parts, and the first fault.
func judge(read *history) (int, *fault, error) {
	now, err := initial(read)
	if err != nil {
		return 0, nil, err
	}
	read.order()
	parts := cut(operations(read))
	for _, part := range parts {
		model := model(now)
		if result := porcupine.CheckOperationsTimeout(model, part, patience); result != porcupine.Ok {
			_, info := porcupine.CheckOperationsVerbose(model, part, patience)
			return len(parts), &fault{result, part, info, model}, nil
		}
		for _, operation := range part {
			now = now.after(operation.Input.(action))
		}
	}
	return len(parts), nil, nil
}

// Prints what is wrong, and draws a picture of it.
func report(path string, found *fault) {
	fmt.Printf("%s: %s, in these %d operations:\n", path, found.result, len(found.part))
	for index, operation := range found.part {
		if index == 40 {
			fmt.Println("  …")
			break
		}
		fmt.Printf("  %d to %d: %s\n", operation.Call, operation.Return, found.model.DescribeOperation(operation.Input, nil))
	}
	picture := strings.TrimSuffix(path, ".jsonl") + ".html"
	if err := porcupine.VisualizePath(found.model, found.info, picture); err == nil {
		fmt.Printf("  drawn in %s\n", picture)
	}
}

func run(folder string) (map[string]*total, bool, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s has no histories", folder)
	}
	totals, right := map[string]*total{}, true
	for _, path := range paths {
		read, err := read(path)
		if err != nil {
			return nil, false, err
		}
		parts, found, err := judge(&read)
		if err != nil {
			return nil, false, err
		}
		if found != nil {
			right = false
			report(path, found)
		}
		// The file is called CAMPAIGN-SEED-NAME.
		campaign := strings.SplitN(filepath.Base(path), "-", 2)[0]
		sum := totals[campaign]
		if sum == nil {
			sum = &total{}
			totals[campaign] = sum
		}
		sum.histories++
		sum.tenures += len(read.tenures)
		sum.parts += parts
	}
	return totals, right, err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "judge FOLDER")
		os.Exit(2)
	}
	started := time.Now()
	totals, right, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	campaigns := make([]string, 0, len(totals))
	for campaign := range totals {
		campaigns = append(campaigns, campaign)
	}
	sort.Strings(campaigns)
	for _, campaign := range campaigns {
		sum := totals[campaign]
		fmt.Printf("%s: %d histories, %d tenures, %d parts\n", campaign, sum.histories, sum.tenures, sum.parts)
	}
	fmt.Printf("judged in %.1f s\n", time.Since(started).Seconds())
	if !right {
		os.Exit(1)
	}
}
