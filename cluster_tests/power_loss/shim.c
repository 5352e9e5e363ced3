/* What a disk would hold if the power went now: a preloaded library that journals durable bytes.
 *
 * For every file below PYDLEDGER_POWERLOSS_ROOT it remembers which ranges were written since the last sync. A sync
 * copies the ranges written before it began, lets the real call run and then appends them to this process's journal
 * (PYDLEDGER_POWERLOSS_JOURNAL/<pid>); names (create, rename, unlink, mkdir) are journalled as they happen and count
 * only from the sync of their directory on. images.py replays a journal into the tree that survives. The journal is
 * written with plain writes: the test kills processes, not the machine, so the page cache keeps it.
 *
 * PYDLEDGER_POWERLOSS_NOSYNC=1 makes every sync a no-op that journals nothing: with it the test must find losses.
 *
 * Writable shared mappings below the root are journalled as violations: they would reach the disk past this library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FD 65536
#define COPY_CHUNK (1 << 20)

struct range {
    off_t offset, size;
    uint64_t write_number;
};

struct node { /* one open inode below the root; fds that are opened on the same inode share it */
    dev_t dev;
    ino_t ino;
    int is_directory;
    char path[PATH_MAX];
    uint64_t id;
    struct range *ranges;
    size_t count, capacity;
    size_t closed; /* ranges that a running sync has copied: later writes must not grow them */
    uint64_t write_number;
    int size_changed;
    pthread_mutex_t sync_lock; /* syncs of one file one after the other, so that journal order is sync order */
    struct node *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *node_of_fd[MAX_FD];
static struct node *nodes;
static uint64_t next_id = 1;
static int journal = -1;
static int no_sync;
static char root[PATH_MAX];
static size_t root_length;

static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static ssize_t (*real_pwritev2)(int, const struct iovec *, int, off_t, int);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_renameat)(int, const char *, int, const char *);
static int (*real_unlink)(const char *);
static int (*real_unlinkat)(int, const char *, int);
static int (*real_rmdir)(const char *);
static int (*real_mkdir)(const char *, mode_t);
static int (*real_mkdirat)(int, const char *, mode_t);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);

static void *find(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "power-loss shim: no %s in the C library\n", name);
        abort();
    }
    return found;
}

static void open_journal(void) {
    const char *directory = getenv("PYDLEDGER_POWERLOSS_JOURNAL");
    char path[PATH_MAX];
    if (!directory || !root_length) return;
    snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    /* The kernel gives pids again: what is there is of a process that had this one. */
    journal = real_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (journal < 0) {
        fprintf(stderr, "power-loss shim: cannot create %s: %s\n", path, strerror(errno));
        abort();
    }
}

static void after_fork_in_child(void) {
    /* A child that execs gets a journal of its own; one that does not must not write into its parent's. */
    if (journal >= 0) real_close(journal);
    journal = -1;
    open_journal();
}

__attribute__((constructor)) static void start(void) {
    const char *configured = getenv("PYDLEDGER_POWERLOSS_ROOT");
    real_open = find("open");
    real_openat = find("openat");
    real_close = find("close");
    real_write = find("write");
    real_pread = find("pread"); /* and not that of a library before this one, which may have its own idea of it */
    real_pwrite = find("pwrite");
    real_pwritev = find("pwritev");
    real_pwritev2 = find("pwritev2");
    real_writev = find("writev");
    real_ftruncate = find("ftruncate");
    real_fsync = find("fsync");
    real_fdatasync = find("fdatasync");
    real_rename = find("rename");
    real_renameat = find("renameat");
    real_unlink = find("unlink");
    real_unlinkat = find("unlinkat");
    real_rmdir = find("rmdir");
    real_mkdir = find("mkdir");
    real_mkdirat = find("mkdirat");
    real_mmap = find("mmap");
    no_sync = getenv("PYDLEDGER_POWERLOSS_NOSYNC") != NULL;
    if (configured && realpath(configured, root)) root_length = strlen(root);
    open_journal();
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

static int below_root(const char *path) {
    return root_length && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

/* Absolute path with the directory part resolved; the last name may not exist. */
static int resolve(int at, const char *path, char *out) {
    char joined[PATH_MAX], *slash, directory[PATH_MAX];
    if (path[0] != '/') {
        char base[PATH_MAX], link[64];
        if (at == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return 0;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
            ssize_t length = readlink(link, base, sizeof base - 1);
            if (length < 0) return 0;
            base[length] = 0;
        }
        if (snprintf(joined, sizeof joined, "%s/%s", base, path) >= (int)sizeof joined) return 0;
    } else if (snprintf(joined, sizeof joined, "%s", path) >= (int)sizeof joined) {
        return 0;
    }
    size_t length = strlen(joined);
    while (length > 1 && joined[length - 1] == '/') joined[--length] = 0;
    slash = strrchr(joined, '/');
    if (!slash) return 0;
    *slash = 0;
    if (!realpath(joined[0] ? joined : "/", directory)) return 0;
    return snprintf(out, PATH_MAX, "%s/%s", directory, slash + 1) < PATH_MAX;
}

static void journal_bytes(const void *data, size_t size) {
    const char *at = data;
    while (size) {
        ssize_t written = real_write(journal, at, size);
        if (written < 0) {
            if (errno == EINTR) continue;
            fprintf(stderr, "power-loss shim: journal: %s\n", strerror(errno));
            abort();
        }
        at += written;
        size -= (size_t)written;
    }
}

/* One record: kind, id, two numbers, two strings' lengths, then the strings or bytes. Native byte order. */
struct record {
    char kind[8];
    uint64_t id, first, second, length_a, length_b;
};

static void journal_record(const char *kind, uint64_t id, uint64_t first, uint64_t second, const char *a, size_t length_a,
                           const char *b, size_t length_b) {
    struct record record;
    char *whole = malloc(sizeof record + length_a + length_b);
    if (journal < 0 || !whole) {
        free(whole);
        return;
    }
    memset(&record, 0, sizeof record);
    snprintf(record.kind, sizeof record.kind, "%s", kind);
    record.id = id;
    record.first = first;
    record.second = second;
    record.length_a = length_a;
    record.length_b = length_b;
    memcpy(whole, &record, sizeof record);
    memcpy(whole + sizeof record, a, length_a);
    memcpy(whole + sizeof record + length_a, b, length_b);
    journal_bytes(whole, sizeof record + length_a + length_b); /* O_APPEND, one write: a kill tears at most the last */
    free(whole);
}

static void journal_names(const char *kind, uint64_t id, const char *a, const char *b) {
    journal_record(kind, id, 0, 0, a, strlen(a), b, strlen(b));
}

static void opened(int fd, int existed) {
    struct stat status;
    char link[64], path[PATH_MAX];
    struct node *node;
    if (fd < 0 || fd >= MAX_FD || journal < 0) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (!below_root(path) || fstat(fd, &status)) return;
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return;
    pthread_mutex_lock(&lock);
    for (node = nodes; node; node = node->next)
        if (node->dev == status.st_dev && node->ino == status.st_ino && !strcmp(node->path, path)) break;
    if (!node || !existed) {
        node = calloc(1, sizeof *node);
        if (!node) abort();
        node->dev = status.st_dev;
        node->ino = status.st_ino;
        node->is_directory = S_ISDIR(status.st_mode);
        snprintf(node->path, sizeof node->path, "%s", path);
        node->id = next_id++;
        pthread_mutex_init(&node->sync_lock, NULL);
        node->next = nodes;
        nodes = node;
        journal_names(existed ? "open" : "create", node->id, path, "");
    }
    node_of_fd[fd] = node;
    pthread_mutex_unlock(&lock);
}

static struct node *node_at(int fd) {
    return fd >= 0 && fd < MAX_FD && journal >= 0 ? node_of_fd[fd] : NULL;
}

/* Called when the bytes are in the file: a sync that begins earlier must leave the range to the next one, or it would
 * copy what is not there yet and call it clean. */
static void dirtied(struct node *node, off_t offset, size_t size) {
    pthread_mutex_lock(&lock);
    struct range *last = node->count > node->closed ? &node->ranges[node->count - 1] : NULL;
    node->write_number++;
    if (last && last->offset + last->size == offset) {
        last->size += (off_t)size;
        last->write_number = node->write_number;
    } else {
        if (node->count == node->capacity) {
            node->capacity = node->capacity ? node->capacity * 2 : 64;
            node->ranges = realloc(node->ranges, node->capacity * sizeof *node->ranges);
            if (!node->ranges) abort();
        }
        node->ranges[node->count++] = (struct range){offset, (off_t)size, node->write_number};
    }
    pthread_mutex_unlock(&lock);
}

static int sync_node(int fd, struct node *node, int (*real)(int)) {
    struct stat status;
    struct range *ranges;
    size_t count, kept = 0, at;
    uint64_t begun;
    char **copies;
    ssize_t *sizes;
    int result;
    if (no_sync) return 0;
    if (node->is_directory) {
        char path[PATH_MAX];
        uint64_t names;
        pthread_mutex_lock(&lock);
        snprintf(path, sizeof path, "%s", node->path);
        names = (uint64_t)lseek(journal, 0, SEEK_END); /* names journalled before here were there when it began */
        pthread_mutex_unlock(&lock);
        result = real(fd);
        if (!result) {
            pthread_mutex_lock(&lock);
            journal_record("dirsync", node->id, names, 0, path, strlen(path), "", 0);
            pthread_mutex_unlock(&lock);
        }
        return result;
    }
    pthread_mutex_lock(&node->sync_lock);
    pthread_mutex_lock(&lock);
    begun = node->write_number;
    count = node->count;
    ranges = malloc((count + 1) * sizeof *ranges);
    copies = calloc(count + 1, sizeof *copies);
    sizes = calloc(count + 1, sizeof *sizes);
    if (!ranges || !copies || !sizes) abort();
    memcpy(ranges, node->ranges, count * sizeof *ranges);
    node->closed = count;
    pthread_mutex_unlock(&lock);
    for (at = 0; at < count; at++) {
        copies[at] = malloc((size_t)ranges[at].size + 1);
        if (!copies[at]) abort();
        sizes[at] = real_pread(fd, copies[at], (size_t)ranges[at].size, ranges[at].offset);
        if (sizes[at] < 0) sizes[at] = 0;
    }
    fstat(fd, &status);
    result = real(fd);
    if (!result) {
        pthread_mutex_lock(&lock);
        journal_record("size", node->id, (uint64_t)status.st_size, 0, "", 0, "", 0);
        for (at = 0; at < count; at++)
            if (sizes[at])
                journal_record("data", node->id, (uint64_t)ranges[at].offset, 0, copies[at], (size_t)sizes[at], "", 0);
        for (at = 0; at < node->count; at++)
            if (node->ranges[at].write_number > begun) node->ranges[kept++] = node->ranges[at];
        node->count = kept;
        node->closed = 0;
        pthread_mutex_unlock(&lock);
    }
    for (at = 0; at < count; at++) free(copies[at]);
    free(copies);
    free(sizes);
    free(ranges);
    pthread_mutex_unlock(&node->sync_lock);
    return result;
}

static int open_common(int at, const char *path, int flags, mode_t mode) {
    char resolved[PATH_MAX];
    int existed = 1;
    if (journal >= 0 && (flags & O_CREAT) && resolve(at, path, resolved) && below_root(resolved))
        existed = access(resolved, F_OK) == 0;
    int fd = real_openat(at, path, flags, mode);
    if (fd >= 0) {
        opened(fd, existed);
        struct node *node = node_at(fd);
        if (node && existed && (flags & O_TRUNC)) dirtied(node, 0, 0);
    }
    return fd;
}

#define MODE_ARGUMENT                                   \
    mode_t mode = 0;                                    \
    if (flags & (O_CREAT | __O_TMPFILE)) {              \
        va_list arguments;                              \
        va_start(arguments, flags);                     \
        mode = (mode_t)va_arg(arguments, int);          \
        va_end(arguments);                              \
    }

int open(const char *path, int flags, ...) {
    MODE_ARGUMENT
    return open_common(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE_ARGUMENT
    return open_common(AT_FDCWD, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    MODE_ARGUMENT
    return open_common(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE_ARGUMENT
    return open_common(at, path, flags, mode);
}

int close(int fd) {
    if (fd >= 0 && fd < MAX_FD) node_of_fd[fd] = NULL; /* the node stays: dirty bytes outlive the descriptor */
    return real_close(fd);
}

static ssize_t wrote(struct node *node, off_t offset, ssize_t size) {
    if (node && size > 0) dirtied(node, offset, (size_t)size);
    return size;
}

/* Where write() and its like begin: the descriptor's own offset tells it behind them, with O_APPEND too. */
static ssize_t wrote_on(int fd, struct node *node, ssize_t size) {
    return node && size > 0 ? wrote(node, lseek(fd, 0, SEEK_CUR) - size, size) : size;
}

ssize_t write(int fd, const void *data, size_t size) { return wrote_on(fd, node_at(fd), real_write(fd, data, size)); }
ssize_t writev(int fd, const struct iovec *vectors, int count) {
    return wrote_on(fd, node_at(fd), real_writev(fd, vectors, count));
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return wrote(node_at(fd), offset, real_pwrite(fd, data, size, offset));
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }
ssize_t pwritev(int fd, const struct iovec *vectors, int count, off_t offset) {
    return wrote(node_at(fd), offset, real_pwritev(fd, vectors, count, offset));
}
ssize_t pwritev64(int fd, const struct iovec *vectors, int count, off_t offset) {
    return pwritev(fd, vectors, count, offset);
}
ssize_t pwritev2(int fd, const struct iovec *vectors, int count, off_t offset, int flags) {
    return wrote(node_at(fd), offset, real_pwritev2(fd, vectors, count, offset, flags));
}
ssize_t pwritev64v2(int fd, const struct iovec *vectors, int count, off_t offset, int flags) {
    return pwritev2(fd, vectors, count, offset, flags);
}
int ftruncate(int fd, off_t size) {
    struct node *node = node_at(fd);
    struct stat status;
    int shrinks = node && !fstat(fd, &status) && size < status.st_size;
    int result = real_ftruncate(fd, size);
    if (!result && shrinks)
        dirtied(node, size, (size_t)(status.st_size - size)); /* bytes cut off must not come back with a later growth */
    return result;
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int fsync(int fd) {
    struct node *node = node_at(fd);
    return node ? sync_node(fd, node, real_fsync) : real_fsync(fd);
}
int fdatasync(int fd) {
    struct node *node = node_at(fd);
    return node ? sync_node(fd, node, real_fdatasync) : real_fdatasync(fd);
}

static int renamed(int result, int from_at, const char *from, int to_at, const char *to, const char *resolved_from,
                   int known) {
    char resolved_to[PATH_MAX];
    (void)from_at;
    (void)from;
    if (!result && known && resolve(to_at, to, resolved_to) && (below_root(resolved_from) || below_root(resolved_to))) {
        pthread_mutex_lock(&lock);
        for (struct node *node = nodes; node; node = node->next)
            if (!strcmp(node->path, resolved_to)) node->path[0] = 0; /* replaced: no name leads to it any more */
        for (struct node *node = nodes; node; node = node->next)
            if (!strcmp(node->path, resolved_from)) snprintf(node->path, sizeof node->path, "%s", resolved_to);
        journal_names("rename", 0, resolved_from, resolved_to);
        pthread_mutex_unlock(&lock);
    }
    return result;
}
int rename(const char *from, const char *to) {
    char resolved[PATH_MAX];
    int known = journal >= 0 && resolve(AT_FDCWD, from, resolved);
    return renamed(real_rename(from, to), AT_FDCWD, from, AT_FDCWD, to, resolved, known);
}
int renameat(int from_at, const char *from, int to_at, const char *to) {
    char resolved[PATH_MAX];
    int known = journal >= 0 && resolve(from_at, from, resolved);
    return renamed(real_renameat(from_at, from, to_at, to), from_at, from, to_at, to, resolved, known);
}

static int removed(int result, const char *resolved, int known) {
    if (!result && known && below_root(resolved)) {
        pthread_mutex_lock(&lock);
        for (struct node *node = nodes; node; node = node->next)
            if (!strcmp(node->path, resolved)) node->path[0] = 0;
        journal_names("unlink", 0, resolved, "");
        pthread_mutex_unlock(&lock);
    }
    return result;
}
int unlink(const char *path) {
    char resolved[PATH_MAX];
    int known = journal >= 0 && resolve(AT_FDCWD, path, resolved);
    return removed(real_unlink(path), resolved, known);
}
int unlinkat(int at, const char *path, int flags) {
    char resolved[PATH_MAX];
    int known = journal >= 0 && resolve(at, path, resolved);
    return removed(real_unlinkat(at, path, flags), resolved, known);
}
int rmdir(const char *path) {
    char resolved[PATH_MAX];
    int known = journal >= 0 && resolve(AT_FDCWD, path, resolved);
    return removed(real_rmdir(path), resolved, known);
}

static int made(int result, int at, const char *path) {
    char resolved[PATH_MAX];
    if (!result && journal >= 0 && resolve(at, path, resolved) && below_root(resolved)) {
        pthread_mutex_lock(&lock);
        journal_names("mkdir", 0, resolved, "");
        pthread_mutex_unlock(&lock);
    }
    return result;
}
int mkdir(const char *path, mode_t mode) { return made(real_mkdir(path, mode), AT_FDCWD, path); }
int mkdirat(int at, const char *path, mode_t mode) { return made(real_mkdirat(at, path, mode), at, path); }

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    struct node *node = node_at(fd);
    if (node && (flags & MAP_SHARED) && (protection & PROT_WRITE)) {
        pthread_mutex_lock(&lock);
        journal_names("bypass", node->id, node->path, "mmap");
        pthread_mutex_unlock(&lock);
    }
    return real_mmap(address, size, protection, flags, fd, offset);
}
void *mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    return mmap(address, size, protection, flags, fd, offset);
}
