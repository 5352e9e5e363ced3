/* A wall clock that is set while a process runs, for that process alone: a preloaded library.
 *
 * Each process has a file of its own, PYDLEDGER_CLOCK_DIR/<pid>, of one number: nanoseconds that are added to the wall
 * clock, read at each look at it. It begins with 0, so that who is started while another one's clock is wrong has the
 * host's. The monotonic clocks stay as they are. clock.py writes the file.
 *
 * What waits until a time of the wall clock goes by the kernel's, which stays right.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000LL

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static const volatile int64_t *shift_ns;

__attribute__((constructor)) static void start(void) {
    const char *directory = getenv("PYDLEDGER_CLOCK_DIR");
    char path[PATH_MAX];
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    if (!real_clock_gettime) {
        fprintf(stderr, "clock shim: no clock_gettime in the C library\n");
        abort();
    }
    if (!directory) return;
    snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644); /* the number of a dead process may come again */
    void *mapped = MAP_FAILED;
    if (fd >= 0 && !ftruncate(fd, sizeof *shift_ns)) mapped = mmap(NULL, sizeof *shift_ns, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        fprintf(stderr, "clock shim: %s: %s\n", path, strerror(errno));
        abort();
    }
    close(fd);
    shift_ns = mapped;
}

static int shifted(clockid_t clock, struct timespec *now) {
    if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime"); /* another library starts first */
    int result = real_clock_gettime(clock, now);
    if (result || !shift_ns || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
    int64_t ns = now->tv_sec * NS + now->tv_nsec + *shift_ns;
    now->tv_sec = ns / NS;
    now->tv_nsec = ns % NS;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) { return shifted(clock, now); }

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (shifted(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *also) {
    struct timespec now;
    if (shifted(CLOCK_REALTIME_COARSE, &now)) return -1;
    if (also) *also = now.tv_sec;
    return now.tv_sec;
}
