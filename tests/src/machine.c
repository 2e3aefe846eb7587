/* A machine with a bad clock and a full, slow or broken disk, for one process: preloaded, it shifts the wall clock, and fails or
 * delays writes.
 *
 * WEIR_TEST_MACHINE names a file of four 64-bit integers, which the test changes while the process runs: the seconds that the
 * wall clock is ahead; whether writes fail, 1 because the disk is full, 2 with EIO; the milliseconds that an fsync takes; and
 * whether it fails with EIO. Only files below WEIR_TEST_DISK are on that disk. Files get no longer, and no bytes are written:
 * worse than a real disk, on which blocks that a file has can be written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct machine {
    volatile int64_t ahead;
    volatile int64_t full;
    volatile int64_t sync;
    volatile int64_t sync_fails;
};

static const struct machine normal;
static const struct machine *machine = &normal;
static const char *disk;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("WEIR_TEST_MACHINE");
    disk = getenv("WEIR_TEST_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *machine, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED)
        machine = found;
    close(file);
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
    real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int on_disk(int file) {
    if (!disk)
        return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    return length >= 0 && (size_t)length >= strlen(disk) && !memcmp(path, disk, strlen(disk));
}

static int full(int file) {
    if (!machine->full || !on_disk(file))
        return 0;
    errno = machine->full == 2 ? EIO : ENOSPC;
    return 1;
}

/* Whether it fails. */
static int delay(int file) {
    if (machine->sync && on_disk(file))
        for (int64_t waited = 0; waited < machine->sync; waited += 5)
            usleep(5000);
    if (!machine->sync_fails || !on_disk(file))
        return 0;
    errno = EIO;
    return 1;
}

int fsync(int file) {
    REAL(fsync);
    return delay(file) ? -1 : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return delay(file) ? -1 : real(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    REAL(clock_gettime);
    int result = real(clock, time);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        time->tv_sec += machine->ahead;
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    REAL(gettimeofday);
    int result = real(time, zone);
    time->tv_sec += machine->ahead;
    return result;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}

ssize_t write(int file, const void *bytes, size_t length) {
    REAL(write);
    return full(file) ? -1 : real(file, bytes, length);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev);
    return full(file) ? -1 : real(file, parts, count);
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t offset) {
    REAL(pwrite);
    return full(file) ? -1 : real(file, bytes, length, offset);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t offset) {
    REAL(pwrite64);
    return full(file) ? -1 : real(file, bytes, length, offset);
}

static int grows(int file, off64_t length) {
    return lseek64(file, 0, SEEK_END) < length && full(file);
}

int ftruncate(int file, off_t length) {
    REAL(ftruncate);
    return grows(file, length) ? -1 : real(file, length);
}

int ftruncate64(int file, off64_t length) {
    REAL(ftruncate64);
    return grows(file, length) ? -1 : real(file, length);
}
