// redsync as a peer: `peer fight URL NAME TIMES LOG [HOLD_MS [PAUSE_MS]]` or `peer serve URL`, as `../README.md`
// describes.
package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	redis "github.com/gomodule/redigo/redis"
	"golang.org/x/sys/unix"
)

// How often it tries: no release is announced to it.
const poll = 5 * time.Millisecond

// The lease in a fight.
const lease = 10 * time.Second

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Returns CLOCK_MONOTONIC in ns, which all processes of a machine share; Go's own clock starts with the process.
func monotonic() int64 {
	var now unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return now.Nano()
}

func milliseconds(words []string, at int) time.Duration {
	if len(words) <= at {
		return 0
	}
	number, err := strconv.Atoi(words[at])
	must(err)
	return time.Duration(number) * time.Millisecond
}

func mutex(from *redsync.Redsync, name string, ttl, wait time.Duration) *redsync.Mutex {
	return from.NewMutex(name,
		redsync.WithExpiry(ttl),
		redsync.WithTries(1+int(wait/poll)),
		redsync.WithRetryDelay(poll),
		// By default a node must answer within a small part of the lease, which is too short for the short leases of tests.
		redsync.WithTimeoutFactor(1),
	)
}

func fight(from *redsync.Redsync, words []string) {
	times, err := strconv.Atoi(words[1])
	must(err)
	hold, pause := milliseconds(words, 3), milliseconds(words, 4)
	log, err := os.OpenFile(words[2], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	must(err)
	rest := func(most time.Duration) {
		if most > 0 {
			time.Sleep(time.Duration(rand.Int63n(int64(most))))
		}
	}
	fmt.Fprintf(log, "ready - %d\n", monotonic())
	for turn := 0; turn < times; turn++ {
		one := mutex(from, words[0], lease, time.Minute)
		called := monotonic()
		must(one.Lock())
		granted := monotonic()
		rest(hold)
		released := monotonic()
		// Fails if the lock is not held now, so it was held the moment before.
		if ok, err := one.Unlock(); !ok {
			panic(err)
		}
		fmt.Fprintf(log, "grant - %d %d\nrelease - %d\n", granted, called, released)
		rest(pause)
	}
}

func serve(from *redsync.Redsync) {
	locks := map[string]*redsync.Mutex{}
	perform := func(words []string) (string, error) {
		key := words[0] + " " + words[2]
		switch words[1] {
		case "acquire":
			one := mutex(from, words[2], milliseconds(words, 3), milliseconds(words, 4))
			if err := one.Lock(); err != nil {
				if err == redsync.ErrFailed || strings.Contains(err.Error(), "already taken") {
					return "none", nil
				}
				return "", err
			}
			locks[key] = one
			return one.Value(), nil
		case "release":
			ok, err := locks[key].Unlock()
			return strconv.FormatBool(ok), err
		case "extend":
			// Extends by the expiry that it was made with.
			ok, err := locks[key].Extend()
			return strconv.FormatBool(ok), err
		}
		return "", fmt.Errorf("no such order: %s", words[1])
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		value, err := perform(words)
		end := "ok " + value
		if err != nil {
			end = "failed " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(words[0], monotonic(), end)
	}
}

func main() {
	action, url, words := os.Args[1], os.Args[2], os.Args[3:]
	pool := &redis.Pool{MaxIdle: 1, Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	from := redsync.New(redigo.NewPool(pool))
	if action == "fight" {
		fight(from, words)
	} else {
		serve(from)
	}
}
