package main

import (
	"os"
	"path/filepath"
	"testing"
)

func hold(token uint64, from, until int64) tenure {
	return tenure{Share: "whole", Token: token, Called: from - 1, From: from, Until: &until}
}

func as(share string, one tenure) tenure {
	one.Share = share
	return one
}

func permit(from, until int64, slots ...slot) tenure {
	one := as("slots", hold(slots[0].Token, from, until))
	one.Slots = slots
	return one
}

func at(number int, token uint64) slot { return slot{Number: number, Token: token} }

func lost(one tenure) tenure {
	one.Until = nil
	return one
}

func called(at int64, one tenure) tenure {
	one.Called = at
	return one
}

func released(at int64, one tenure) tenure {
	one.Released = &at
	return one
}

func expect(t *testing.T, right bool, kind string, tenures ...tenure) {
	t.Helper()
	parts, found, err := judge(&history{Name: "x", Kind: kind, Permits: 2, SharesTokens: true, tenures: tenures})
	if err != nil {
		t.Fatal(err)
	}
	if (found == nil) != right {
		t.Errorf("%s, %d tenures in %d parts: %+v", kind, len(tenures), parts, found)
	}
}

func TestLocks(t *testing.T) {
	for _, kind := range []string{"lock", "fair"} {
		expect(t, true, kind, hold(1, 10, 20), hold(2, 22, 30), released(45, hold(3, 40, 41)))
		// Nobody knows whether a dead holder held it at all.
		expect(t, true, kind, lost(hold(1, 10, 0)), hold(2, 12, 30))
		// Calls under way at once return in the order of their tokens, whatever the order of their calls.
		expect(t, true, kind, called(1, hold(5, 30, 35)), called(2, hold(4, 20, 25)))
		// This acquire returned when its lease was over, and another's lease, too.
		expect(t, true, kind, called(1, lost(hold(1, 40, 0))), hold(2, 20, 30))
		expect(t, false, kind, called(15, lost(hold(1, 40, 0))), hold(2, 12, 30))
		expect(t, false, kind, hold(1, 10, 20), hold(2, 18, 30))
		expect(t, false, kind, hold(1, 10, 20), hold(1, 22, 30))
		expect(t, false, kind, hold(5, 10, 20), hold(4, 22, 30))
		// Also across a quiet point.
		expect(t, false, kind, released(21, hold(5, 10, 20)), hold(4, 1000, 1001))
		expect(t, false, kind, hold(5, 10, 2000), hold(6, 1000, 1001))
	}
}

func TestReadersAndWriters(t *testing.T) {
	writer := func(token uint64, from, until int64) tenure { return as("write", hold(token, from, until)) }
	reader := func(token uint64, from, until int64) tenure { return as("read", hold(token, from, until)) }
	expect(t, true, "read_write", writer(10, 10, 20), reader(11, 22, 60), reader(11, 25, 30), writer(13, 70, 80))
	expect(t, true, "read_write", lost(writer(10, 10, 0)), lost(reader(11, 12, 0)), writer(20, 14, 30))
	expect(t, false, "read_write", writer(10, 10, 20), reader(11, 18, 30))
	expect(t, false, "read_write", reader(11, 10, 20), writer(20, 18, 30))
	expect(t, false, "read_write", writer(10, 10, 20), writer(20, 18, 30))
	expect(t, false, "read_write", writer(10, 10, 20), reader(10, 22, 30))
	expect(t, false, "read_write", reader(11, 10, 20), writer(11, 22, 30))
	expect(t, false, "read_write", reader(11, 10, 30), reader(12, 20, 40))
	tenures := []tenure{reader(11, 10, 30), reader(12, 20, 40)}
	if _, found, _ := judge(&history{Kind: "read_write", tenures: tenures}); found != nil {
		t.Error("on a quorum readers have tokens of their own")
	}
}

func TestSemaphores(t *testing.T) {
	expect(t, true, "semaphore", permit(10, 20, at(0, 5), at(1, 6)), permit(22, 40, at(1, 7)), permit(30, 50, at(0, 6)))
	expect(t, true, "semaphore", lost(permit(10, 0, at(0, 5), at(1, 6))), permit(12, 40, at(1, 7)))
	expect(t, false, "semaphore", permit(10, 20, at(0, 5), at(1, 6)), permit(18, 40, at(1, 7)))
	expect(t, false, "semaphore", permit(10, 20, at(0, 5)), permit(22, 40, at(0, 5)))
	expect(t, false, "semaphore", permit(10, 20, at(2, 5)))
}

func TestPartsEndAtQuietPoints(t *testing.T) {
	// The third is called while the second is held, the fourth once the third is released.
	tenures := []tenure{released(21, hold(1, 10, 20)), released(41, hold(2, 30, 40)), called(35, hold(3, 45, 50)), hold(4, 60, 70)}
	tenures[2] = released(51, tenures[2])
	parts := cut(operations(&history{tenures: tenures}))
	sizes := []int{}
	for _, part := range parts {
		sizes = append(sizes, len(part))
	}
	// A part may end while a lock is held: the last acquire and its end are two.
	want := []int{1, 1, 1, 2, 1, 1, 1}
	if len(sizes) != len(want) {
		t.Fatalf("%v", sizes)
	}
	for index := range want {
		if sizes[index] != want[index] {
			t.Fatalf("%v", sizes)
		}
	}
}

func TestFoldersAreRead(t *testing.T) {
	right := `{"name":"lock-1","kind":"semaphore","permits":2,"shares_tokens":false}
{"share":"slots","token":5,"slots":[{"number":0,"token":5}],"called":1,"from":2,"until":3,"released":4}
`
	wrong := `{"share":"slots","token":5,"slots":[{"number":0,"token":5}],"called":5,"from":6,"until":null,"released":null}
`
	for text, want := range map[string]bool{right: true, right + wrong: false} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "semaphores-7-lock-1.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		totals, got, err := run(folder)
		if err != nil || got != want || totals["semaphores"].histories != 1 {
			t.Errorf("%v %v %v", totals, got, err)
		}
		if _, err := os.Stat(filepath.Join(folder, "semaphores-7-lock-1.html")); (err == nil) == want {
			t.Errorf("a picture of what is wrong: %v", err)
		}
	}
	if _, _, err := run(t.TempDir()); err == nil {
		t.Error("a folder without histories proves nothing")
	}
}
