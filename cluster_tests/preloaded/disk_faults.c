/* A disk that has faults, under a process that runs: a preloaded library, steered by a file that the test writes.
 *
 * Each directory right below PYDLEDGER_DISKFAULTS_ROOT is a disk of its own. The file `disk-faults` in it says which
 * faults the disk has; it is read at each call, so that what a test renames into place counts from the next call on and
 * outlives the process. What was done is appended to `disk-faults.done`, a line "kind path" each. disk_faults.py writes
 * the one and counts the other, and says what the faults are.
 *
 * Only calls by descriptor and position are looked at, syncs and mkdir: disk/ makes no others.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define UNREADABLE_MAX 8
#define NAME_MAX_HERE 256
#define CONTROL_SIZE_MAX 4096
#define EXTENTS 64

struct unreadable { /* whole pages of one file, which is named from the disk's directory on */
    char name[NAME_MAX_HERE];
    off_t begin, end;
};

struct failing { /* calls on files whose name, from the disk's directory on, begins so */
    int is_on;
    char under[NAME_MAX_HERE];
};

struct faults { /* as the file says it now */
    int hang_syncs, hang_writes, no_space;
    struct failing syncs, writes;
    long delay_syncs_ms;
    uint64_t space_id; /* which no_space it is: bytes are counted anew for each */
    int64_t space;
    size_t unreadable_count;
    struct unreadable unreadable[UNREADABLE_MAX];
};

struct disk { /* what one call is about */
    char path[PATH_MAX], control[PATH_MAX];
    const char *name; /* the path from the disk's directory on */
    struct faults faults;
};

struct page { /* written as a whole since it could not be read: the drive has given it another sector */
    dev_t dev;
    ino_t ino;
    off_t number;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static uint64_t space_id;
static int64_t space_used;
static struct page *rewritten;
static size_t rewritten_count, rewritten_capacity;

static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwritev2)(int, const struct iovec *, int, off_t, int);
static int (*real_fallocate)(int, int, off_t, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_mkdir)(const char *, mode_t);

static void *find(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "disk-faults shim: no %s in the C library\n", name);
        abort();
    }
    return found;
}

__attribute__((constructor)) static void start(void) {
    const char *configured = getenv("PYDLEDGER_DISKFAULTS_ROOT");
    real_pread = find("pread");
    real_pwrite = find("pwrite");
    real_pwritev2 = find("pwritev2");
    real_fallocate = find("fallocate");
    real_fsync = find("fsync");
    real_fdatasync = find("fdatasync");
    real_mkdir = find("mkdir");
    if (configured && realpath(configured, root)) root_length = strlen(root);
}

/* System calls by number: another preloaded library must not take these for the broker's. */
static int open_raw(const char *path, int flags) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0644); }

/* Whether the line is about such calls. */
static int read_failing(struct failing *failing, const char *word, const char *line) {
    size_t length = strlen(word);
    if (strncmp(line, word, length) || (line[length] && line[length] != ' ')) return 0;
    failing->is_on = 1;
    snprintf(failing->under, sizeof failing->under, "%s", line[length] ? line + length + 1 : "");
    return 1;
}

static int fails(const struct disk *disk, const struct failing *failing) {
    return failing->is_on && !strncmp(disk->name, failing->under, strlen(failing->under));
}

static void read_line(struct faults *faults, const char *line) {
    struct unreadable one;
    long long begin, end;
    unsigned long long id;
    long long space;
    if (!strcmp(line, "hang_syncs")) faults->hang_syncs = 1;
    else if (!strcmp(line, "hang_writes")) faults->hang_writes = 1;
    else if (read_failing(&faults->syncs, "fail_syncs", line)) return;
    else if (read_failing(&faults->writes, "fail_writes", line)) return;
    else if (sscanf(line, "delay_syncs %ld", &faults->delay_syncs_ms) == 1) return;
    else if (sscanf(line, "no_space %llu %lld", &id, &space) == 2) {
        faults->no_space = 1;
        faults->space_id = id;
        faults->space = space;
    } else if (sscanf(line, "fail_reads %lld %lld %255[^\n]", &begin, &end, one.name) == 3 &&
               faults->unreadable_count < UNREADABLE_MAX) {
        one.begin = begin;
        one.end = end;
        faults->unreadable[faults->unreadable_count++] = one;
    } else {
        fprintf(stderr, "disk-faults shim: cannot read \"%s\"\n", line);
        abort();
    }
}

static void read_faults(struct disk *disk) {
    char text[CONTROL_SIZE_MAX], *line, *rest = text;
    memset(&disk->faults, 0, sizeof disk->faults);
    int fd = open_raw(disk->control, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t size = read(fd, text, sizeof text - 1); /* one rename, one read: never half of it */
    syscall(SYS_close, fd);
    text[size > 0 ? size : 0] = 0;
    while ((line = strsep(&rest, "\n")))
        if (*line) read_line(&disk->faults, line);
}

static int look_at(struct disk *disk, const char *path) {
    if (!root_length || strncmp(path, root, root_length) || path[root_length] != '/') return 0;
    const char *end = strchr(path + root_length + 1, '/');
    if (!end) return 0;
    if (snprintf(disk->path, PATH_MAX, "%s", path) >= PATH_MAX) return 0;
    if (snprintf(disk->control, PATH_MAX, "%.*s/disk-faults", (int)(end - path), path) >= PATH_MAX) return 0;
    disk->name = disk->path + (end - path) + 1;
    read_faults(disk);
    return 1;
}

static int look(struct disk *disk, int fd) {
    char link[64], path[PATH_MAX];
    if (!root_length) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return look_at(disk, path);
}

static void note(const struct disk *disk, const char *kind) {
    char path[PATH_MAX + 8], line[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s.done", disk->control);
    int length = snprintf(line, sizeof line, "%s %s\n", kind, disk->path);
    int fd = open_raw(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC);
    if (fd < 0 || syscall(SYS_write, fd, line, (size_t)length) != length) {
        fprintf(stderr, "disk-faults shim: %s: %s\n", path, strerror(errno));
        abort();
    }
    syscall(SYS_close, fd);
}

static int refuse(const struct disk *disk, const char *kind, int error) {
    note(disk, kind);
    errno = error;
    return -1;
}

static void wait_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

static void hang(struct disk *disk, const int *is_hanging, const char *kind) {
    if (!*is_hanging) return;
    note(disk, kind);
    while (*is_hanging) {
        wait_ms(2);
        read_faults(disk);
    }
}

/* -- pages that cannot be read ----------------------------------------------------------------------------------- */

static int is_rewritten(const struct stat *file, off_t number) {
    for (size_t at = 0; at < rewritten_count; at++)
        if (rewritten[at].ino == file->st_ino && rewritten[at].dev == file->st_dev && rewritten[at].number == number)
            return 1;
    return 0;
}

/* The first page of [offset, end) that cannot be read; -1 for none. */
static off_t unreadable_page(const struct disk *disk, int fd, off_t offset, off_t end) {
    struct stat file;
    off_t found = -1;
    if (!disk->faults.unreadable_count || fstat(fd, &file)) return -1;
    if (end > file.st_size) end = file.st_size;
    pthread_mutex_lock(&lock);
    for (off_t number = offset / PAGE; found < 0 && number * PAGE < end; number++)
        for (size_t at = 0; found < 0 && at < disk->faults.unreadable_count; at++) {
            const struct unreadable *one = &disk->faults.unreadable[at];
            if (!strcmp(one->name, disk->name) && number * PAGE >= one->begin && number * PAGE < one->end &&
                !is_rewritten(&file, number))
                found = number;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static void remember_rewritten(int fd, off_t number) {
    struct stat file;
    if (fstat(fd, &file)) return;
    pthread_mutex_lock(&lock);
    if (rewritten_count == rewritten_capacity) {
        rewritten_capacity = rewritten_capacity ? rewritten_capacity * 2 : 64;
        rewritten = realloc(rewritten, rewritten_capacity * sizeof *rewritten);
        if (!rewritten) abort();
    }
    rewritten[rewritten_count++] = (struct page){file.st_dev, file.st_ino, number};
    pthread_mutex_unlock(&lock);
}

static ssize_t read_at(int fd, void *data, size_t size, off_t offset) {
    struct disk disk;
    if (!look(&disk, fd)) return real_pread(fd, data, size, offset);
    off_t bad = unreadable_page(&disk, fd, offset, offset + (off_t)size);
    if (bad < 0) return real_pread(fd, data, size, offset);
    if (bad * PAGE > offset) return real_pread(fd, data, (size_t)(bad * PAGE - offset), offset); /* as the kernel: short */
    return refuse(&disk, "read_failed", EIO);
}

/* The kernel reads a page of which only a part is written: so only a page that is written whole is made good. */
static int has_unreadable_edge(const struct disk *disk, int fd, off_t offset, off_t end) {
    if (offset % PAGE && unreadable_page(disk, fd, offset, offset + 1) >= 0) return 1;
    return end % PAGE && unreadable_page(disk, fd, end - 1, end) >= 0;
}

static void made_good(const struct disk *disk, int fd, off_t offset, off_t end) {
    off_t number;
    while ((number = unreadable_page(disk, fd, offset, end)) >= 0) {
        remember_rewritten(fd, number);
        note(disk, "page_rewritten");
    }
}

/* -- space ------------------------------------------------------------------------------------------------------- */

/* Bytes of [offset, offset + size) that have no block yet, and where they begin. What has one takes writes on a full
 * disk: a vote, a mark, what was set aside for the log. */
static off_t unallocated(int fd, off_t offset, off_t size, off_t *first) {
    union {
        struct fiemap map;
        char bytes[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
    } asked;
    off_t at = offset, end = offset + size, missing = 0;
    *first = end;
    while (at < end) {
        off_t allocated_from = end, allocated_to = end;
        memset(&asked, 0, sizeof asked);
        asked.map.fm_start = (uint64_t)at;
        asked.map.fm_length = (uint64_t)(end - at);
        asked.map.fm_extent_count = EXTENTS;
        if (ioctl(fd, FS_IOC_FIEMAP, &asked.map)) {
            /* tmpfs and its like: what was only set aside counts as missing there. */
            off_t data = lseek(fd, at, SEEK_DATA);
            if (data >= 0 && data < end) {
                allocated_from = data;
                allocated_to = lseek(fd, data, SEEK_HOLE);
            }
        } else if (asked.map.fm_mapped_extents) {
            allocated_from = (off_t)asked.map.fm_extents[0].fe_logical;
            allocated_to = allocated_from + (off_t)asked.map.fm_extents[0].fe_length;
        }
        if (allocated_from > at) {
            if (*first == end) *first = at;
            missing += (allocated_from < end ? allocated_from : end) - at;
        }
        at = allocated_to;
    }
    return missing;
}

/* How much of `wanted` new bytes there is space for: as many as are left, or with `is_whole` all or none. */
static off_t take_space(const struct disk *disk, off_t wanted, int is_whole) {
    pthread_mutex_lock(&lock);
    if (space_id != disk->faults.space_id) {
        space_id = disk->faults.space_id;
        space_used = 0;
    }
    off_t left = disk->faults.space - space_used;
    off_t taken = wanted <= left ? wanted : is_whole ? 0 : left;
    space_used += taken;
    pthread_mutex_unlock(&lock);
    return taken;
}

/* How much of a write the disk takes: all, or as the kernel does the part that fits. */
static off_t room(const struct disk *disk, int fd, off_t offset, off_t size) {
    off_t first;
    if (!disk->faults.no_space) return size;
    off_t missing = unallocated(fd, offset, size, &first), taken = take_space(disk, missing, 0);
    return taken == missing ? size : first - offset + taken;
}

static ssize_t wrote(const struct disk *disk, int fd, off_t offset, ssize_t size) {
    if (size > 0) made_good(disk, fd, offset, offset + size);
    return size;
}

/* How much of it may be written; -1: nothing, errno says why. */
static off_t admitted(struct disk *disk, int fd, off_t offset, off_t size) {
    hang(disk, &disk->faults.hang_writes, "write_hung");
    if (fails(disk, &disk->faults.writes) || has_unreadable_edge(disk, fd, offset, offset + size))
        return refuse(disk, "write_failed", EIO);
    off_t taken = room(disk, fd, offset, size);
    return size && !taken ? refuse(disk, "no_space", ENOSPC) : taken;
}

/* -- what is preloaded ------------------------------------------------------------------------------------------- */

ssize_t pread(int fd, void *data, size_t size, off_t offset) { return read_at(fd, data, size, offset); }
ssize_t pread64(int fd, void *data, size_t size, off_t offset) { return read_at(fd, data, size, offset); }

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    struct disk disk;
    if (!look(&disk, fd)) return real_pwrite(fd, data, size, offset);
    off_t taken = admitted(&disk, fd, offset, (off_t)size);
    return taken < 0 ? -1 : wrote(&disk, fd, offset, real_pwrite(fd, data, (size_t)taken, offset));
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }

ssize_t pwritev2(int fd, const struct iovec *vectors, int count, off_t offset, int flags) {
    struct disk disk;
    off_t size = 0;
    if (!look(&disk, fd)) return real_pwritev2(fd, vectors, count, offset, flags);
    for (int at = 0; at < count; at++) size += (off_t)vectors[at].iov_len;
    off_t taken = admitted(&disk, fd, offset, size);
    if (taken < 0) return -1;
    if (taken == size) return wrote(&disk, fd, offset, real_pwritev2(fd, vectors, count, offset, flags));
    size_t first = vectors[0].iov_len < (size_t)taken ? vectors[0].iov_len : (size_t)taken;
    return wrote(&disk, fd, offset, real_pwrite(fd, vectors[0].iov_base, first, offset)); /* short, as may always be */
}
ssize_t pwritev64v2(int fd, const struct iovec *vectors, int count, off_t offset, int flags) {
    return pwritev2(fd, vectors, count, offset, flags);
}
ssize_t pwritev(int fd, const struct iovec *vectors, int count, off_t offset) {
    return pwritev2(fd, vectors, count, offset, 0);
}
ssize_t pwritev64(int fd, const struct iovec *vectors, int count, off_t offset) {
    return pwritev2(fd, vectors, count, offset, 0);
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
    struct disk disk;
    off_t first;
    if (look(&disk, fd) && disk.faults.no_space) {
        off_t missing = unallocated(fd, offset, size, &first);
        if (missing && !take_space(&disk, missing, 1)) return refuse(&disk, "no_space", ENOSPC);
    }
    return real_fallocate(fd, mode, offset, size);
}
int fallocate64(int fd, int mode, off_t offset, off_t size) { return fallocate(fd, mode, offset, size); }

int mkdir(const char *path, mode_t mode) { /* a directory needs a block, an empty file needs none */
    struct disk disk;
    struct stat found;
    if (look_at(&disk, path) && disk.faults.no_space && stat(path, &found) && !take_space(&disk, PAGE, 1))
        return refuse(&disk, "no_space", ENOSPC);
    return real_mkdir(path, mode);
}

static int synced(int fd, int (*real)(int)) {
    struct disk disk;
    if (!look(&disk, fd)) return real(fd);
    if (disk.faults.delay_syncs_ms) {
        note(&disk, "sync_delayed");
        wait_ms(disk.faults.delay_syncs_ms);
    }
    hang(&disk, &disk.faults.hang_syncs, "sync_hung");
    return fails(&disk, &disk.faults.syncs) ? refuse(&disk, "sync_failed", EIO) : real(fd);
}
int fsync(int fd) { return synced(fd, real_fsync); }
int fdatasync(int fd) { return synced(fd, real_fdatasync); }
