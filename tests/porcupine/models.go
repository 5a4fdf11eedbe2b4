package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// A state of a lock. `after` does not depend on the order of actions, so the state at a quiet point is known without the
// order of the actions before it.
type state interface {
	// Whether the action may happen in this state.
	admits(action) bool
	// The state after it, if it is admitted.
	after(action) state
}

// The state of a lock that nobody has held yet.
func initial(read *history) (state, error) {
	switch read.Kind {
	case "lock", "fair":
		return exclusive{}, nil
	case "read_write":
		return readWrite{shares: read.SharesTokens}, nil
	case "semaphore":
		if read.Permits > mostPermits {
			return nil, fmt.Errorf("%s: more than %d slots", read.Name, mostPermits)
		}
		return semaphore{permits: read.Permits}, nil
	}
	return nil, fmt.Errorf("%s: unknown kind %q", read.Name, read.Kind)
}

// A lock, fair or not: one tenure at a time, and tokens that rise.
type exclusive struct {
	// The sum of the tokens of all holders, which is the holder's token, and their number.
	holder  uint64
	holders int
	last    uint64
	begun   int
}

func (lock exclusive) admits(next action) bool {
	if next.begins {
		return lock.holders == 0 && next.tenure.Token > lock.last && lock.begun >= next.tenure.earlier
	}
	return lock.holders == 1 && lock.holder == next.tenure.Token
}

func (lock exclusive) after(next action) state {
	if next.begins {
		lock.holder += next.tenure.Token
		lock.holders++
		lock.begun++
		lock.last = larger(lock.last, next.tenure.Token)
	}
	if next.ends {
		lock.holder -= next.tenure.Token
		lock.holders--
	}
	return lock
}

// A read/write lock: one writer or any number of readers. A writer's token is larger than all before. A reader's is larger
// than those of writers before, and, if readers share tokens, that of the readers inside.
type readWrite struct {
	shares           bool
	writers, readers int
	begun            int
	lastWriter       uint64
	lastReader       uint64
}

func (lock readWrite) admits(next action) bool {
	token, writes := next.tenure.Token, next.tenure.Share == "write"
	switch {
	case !next.begins && writes:
		return lock.writers == 1
	case !next.begins:
		return lock.readers > 0
	case lock.begun < next.tenure.earlier || lock.writers > 0 || token <= lock.lastWriter:
		return false
	case writes:
		return lock.readers == 0 && token > lock.lastReader
	case !lock.shares:
		return true
	case lock.readers > 0:
		return token == lock.lastReader
	default:
		return token >= lock.lastReader
	}
}

func (lock readWrite) after(next action) state {
	change := 0
	if next.begins {
		lock.begun++
		change++
	}
	if next.ends {
		change--
	}
	if next.tenure.Share == "write" {
		lock.writers += change
		lock.lastWriter = larger(lock.lastWriter, next.tenure.Token)
	} else {
		lock.readers += change
		lock.lastReader = larger(lock.lastReader, next.tenure.Token)
	}
	return lock
}

// States are compared by value, so they are arrays.
const mostPermits = 16

// A semaphore: each slot has one holder at a time, and tokens of its own that rise. A permit gets all of its slots at
// once, and gives them back at once.
type semaphore struct {
	permits int
	holders [mostPermits]int
	last    [mostPermits]uint64
	begun   [mostPermits]int
}

func (slots semaphore) admits(next action) bool {
	for _, slot := range next.tenure.Slots {
		if slot.Number >= slots.permits {
			return false
		}
		holders, last := slots.holders[slot.Number], slots.last[slot.Number]
		if next.begins {
			if holders != 0 || slot.Token <= last || slots.begun[slot.Number] < slot.earlier {
				return false
			}
		} else if holders != 1 || last != slot.Token {
			return false
		}
	}
	return true
}

func (slots semaphore) after(next action) state {
	for _, slot := range next.tenure.Slots {
		if next.begins {
			slots.holders[slot.Number]++
			slots.begun[slot.Number]++
			slots.last[slot.Number] = larger(slots.last[slot.Number], slot.Token)
		}
		if next.ends {
			slots.holders[slot.Number]--
		}
	}
	return slots
}

func larger(a, b uint64) uint64 {
	if a > b {
		return a
	}
	return b
}

func model(first state) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return first },
		Step: func(before, input, _ interface{}) (bool, interface{}) {
			now, next := before.(state), input.(action)
			if !now.admits(next) {
				return false, now
			}
			return true, now.after(next)
		},
		DescribeOperation: func(input, _ interface{}) string {
			next := input.(action)
			verb := "acquire"
			if !next.begins {
				verb = "end"
			} else if next.ends {
				verb = "acquire and end"
			}
			return fmt.Sprintf("%s %s %d %v", verb, next.tenure.Share, next.tenure.Token, next.tenure.Slots)
		},
		DescribeState: func(now interface{}) string { return fmt.Sprintf("%+v", now) },
	}
}
