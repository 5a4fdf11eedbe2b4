// Preloaded into a redis-server: shifts its wall clock and changes its rate, as set in a file that the test writes.
// Redis expires keys by gettimeofday. The monotonic clocks are unchanged, as they are when a real wall clock is set.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

// Nanoseconds to add, parts per million to run faster, and the moment from which the clock runs faster.
static volatile const int64_t *settings;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("REDLOCK_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, 3 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) settings = map;
}

static int64_t moved(int64_t now) {
    return settings ? now + settings[0] + (int64_t)((double)(now - settings[2]) * (double)settings[1] / 1e6) : now;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t now = moved((int64_t)time->tv_sec * 1000000000 + time->tv_nsec);
        time->tv_sec = now / 1000000000;
        time->tv_nsec = now % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
