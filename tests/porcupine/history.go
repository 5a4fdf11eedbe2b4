package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
)

// A history is what is known of one lock: its first line, and a tenure for each other line.
type history struct {
	Name string
	// lock, fair, read_write or semaphore.
	Kind string
	// The number of slots of a semaphore.
	Permits int
	// Whether readers between two writers share one token.
	SharesTokens bool `json:"shares_tokens"`

	tenures []tenure
}

type slot struct {
	Number int
	Token  uint64

	// The number of tenures with this slot that began earlier.
	earlier int
}

// A tenure is one hold, as its holder saw it. Times are in ns of a clock that all processes share.
type tenure struct {
	// whole, write, read or slots.
	Share string
	Token uint64
	Slots []slot
	// When the acquire was called, and when it returned.
	Called int64
	From   int64
	// The last moment at which the holder saw it held; nil if it never did, or died.
	Until *int64
	// When its release had succeeded; nil if it did not, or if that is unknown.
	Released *int64

	// The number of tenures that began earlier, except those in any order with it. Zero for a permit.
	earlier int
}

func read(path string) (history, error) {
	var read history
	file, err := os.Open(path)
	if err != nil {
		return read, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		if number == 1 {
			err = json.Unmarshal(lines.Bytes(), &read)
		} else {
			read.tenures = append(read.tenures, tenure{})
			err = json.Unmarshal(lines.Bytes(), &read.tenures[len(read.tenures)-1])
		}
		if err != nil {
			return read, fmt.Errorf("%s:%d: %w", path, number, err)
		}
	}
	if err = lines.Err(); err == nil && read.Kind == "" {
		err = fmt.Errorf("%s: names no kind of lock", path)
	}
	return read, err
}

// Notes which tenures began earlier, by their tokens. Without that the models admit the same histories, but porcupine
// would also try a tenure with a large token early, and would find out late that none with a smaller one can follow.
func (all *history) order() {
	var tokens, writers []uint64
	slots := map[int][]uint64{}
	for _, one := range all.tenures {
		tokens = append(tokens, one.Token)
		if one.Share == "write" {
			writers = append(writers, one.Token)
		}
		for _, slot := range one.Slots {
			slots[slot.Number] = append(slots[slot.Number], slot.Token)
		}
	}
	ascending(tokens)
	ascending(writers)
	for _, tokens := range slots {
		ascending(tokens)
	}
	for index := range all.tenures {
		one := &all.tenures[index]
		switch {
		case one.Share == "slots":
		case one.Share == "read" && !all.SharesTokens:
			// The readers since the last writer may come in any order.
			if before := smaller(writers, one.Token); before > 0 {
				one.earlier = smaller(tokens, writers[before-1]+1)
			}
		default:
			one.earlier = smaller(tokens, one.Token)
		}
		for index := range one.Slots {
			slot := &one.Slots[index]
			slot.earlier = smaller(slots[slot.Number], slot.Token)
		}
	}
}

func ascending(tokens []uint64) {
	sort.Slice(tokens, func(a, b int) bool { return tokens[a] < tokens[b] })
}

// The number of tokens that are smaller than this one.
func smaller(ascending []uint64, token uint64) int {
	return sort.Search(len(ascending), func(index int) bool { return ascending[index] >= token })
}
