/* A board over time: what it was told, what it does, what its sensors have seen.
 *
 * Everything is a function of the time since a start stamp that all processes share. What cannot be (energy and
 * throttle times, which must not change when a scenario is altered) is integrated up to the last tick of the counter
 * and kept in a mapped file, board.<index>, whichever process asks. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x66616b656e766d31ULL

char state_folder[3584];
static int64_t start_ns;

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t monotonic_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
int64_t realtime_ns(void) { return clock_ns(CLOCK_REALTIME); }
int64_t since_start(void) { return monotonic_ns() - start_ns; }

/* ---- files of the state folder ---- */

bool state_path(char *path, size_t size, const char *name, int index) {
    int length = index < 0 ? snprintf(path, size, "%s/%s", state_folder, name)
                           : snprintf(path, size, "%s/%s.%d", state_folder, name, index);
    return length > 0 && (size_t)length < size;
}

/* The text of a small file (empty when there is none) and when it was written, ns since the start stamp. */
size_t read_text(const char *path, char *text, size_t size, int64_t *modified) {
    *text = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    struct stat about;
    if (modified && !fstat(fd, &about))
        *modified = since_start() - (realtime_ns() - (about.st_mtim.tv_sec * NS_PER_S + about.st_mtim.tv_nsec));
    ssize_t length = read(fd, text, size - 1);
    close(fd);
    if (length < 0) length = 0;
    text[length] = 0;
    return (size_t)length;
}

/* Replaces a state file at once; no text: removes it. */
bool write_state(const char *name, int index, const char *text) {
    char path[4096], made[4160];
    if (!state_path(path, sizeof path, name, index)) return false;
    if (!text) return !unlink(path) || errno == ENOENT;
    snprintf(made, sizeof made, "%s.%d.new", path, (int)getpid());
    int fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    bool written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    if (written && !rename(made, path)) return true;
    unlink(made);
    return false;
}

/* The moment from which all processes count: made by the first of them, taken over by all others. */
bool start_stamp(void) {
    char path[4096], made[4160], text[64];
    if (!state_path(path, sizeof path, "start", -1)) return false;
    if (!read_text(path, text, sizeof text, NULL)) {
        snprintf(made, sizeof made, "%s.%d.new", path, (int)getpid());
        int fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) return false;
        int length = snprintf(text, sizeof text, "%lld\n", (long long)monotonic_ns());
        bool written = write(fd, text, (size_t)length) == length;
        close(fd);
        /* A link never replaces a file: of several first processes one wins. */
        bool linked = written && (!link(made, path) || errno == EEXIST);
        unlink(made);
        if (!linked || !read_text(path, text, sizeof text, NULL)) return false;
    }
    start_ns = strtoll(text, NULL, 10);
    return true;
}

/* ---- what a board was told ---- */

static const Change *change_at(const Board *board, ChangeKind kind, int64_t t) {
    const Shared *shared = board->shared;
    for (int i = shared->count - 1; i >= 0; i--)
        if (shared->changes[i].kind == kind && shared->changes[i].t <= t) return &shared->changes[i];
    return &shared->before[kind];
}

void lock_at(const Board *board, ChangeKind kind, int64_t t, double *low, double *high) {
    const Change *change = change_at(board, kind, t);
    *low = change->a;
    *high = change->b;
}

/* Half of the changes are forgotten when there is no room: only their last of each kind still matters. */
static void forget(Shared *shared) {
    int half = MAX_CHANGES / 2;
    for (int i = 0; i < half; i++) shared->before[shared->changes[i].kind] = shared->changes[i];
    memmove(shared->changes, shared->changes + half, (size_t)(shared->count - half) * sizeof *shared->changes);
    shared->count -= half;
}

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t tick_before(int64_t t, double period_ms) {
    int64_t period = (int64_t)(period_ms * 1e6);
    return period > 0 ? t / period * period : t;
}

static void integrate(Board *board, int64_t to);

static void add_change(Board *board, ChangeKind kind, int64_t t, double a, double b) {
    Shared *shared = board->shared;
    const Change *last = change_at(board, kind, FOREVER);
    if (last->a == a && last->b == b) return;
    if (shared->count == MAX_CHANGES) {
        integrate(board, earlier(t, tick_before(since_start(), board->config.energy_period_ms)));
        forget(shared);
    }
    int at = shared->count++;
    for (; at > 0 && shared->changes[at - 1].t > t; at--) shared->changes[at] = shared->changes[at - 1];
    shared->changes[at] = (Change){t, kind, a, b};
}

static double share(double value) { return value < 0 ? 0 : value > 1 ? 1 : value; }

/* load.<index>: one number that holds since the file was written, or lines `MONOTONIC_NS LOAD`, appended. */
static void observe_load(Board *board) {
    char path[4096], text[65536], *end;
    int64_t modified = since_start();
    state_path(path, sizeof path, "load", (int)board->index);
    if (!read_text(path, text, sizeof text, &modified)) {
        board->shared->load_offset = 0;
        if (access(path, F_OK)) add_change(board, LOAD, since_start(), UNSET, 0);
        return;
    }
    double value = strtod(text, &end);
    if (end == text) return;
    if (!*(end + strspn(end, " \n"))) {
        add_change(board, LOAD, modified, share(value), 0);
        board->shared->load_offset = 0;
        return;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat about;
    if (!fstat(fd, &about) && about.st_size < board->shared->load_offset) board->shared->load_offset = 0;
    for (;;) {
        ssize_t length = pread(fd, text, sizeof text - 1, board->shared->load_offset);
        if (length <= 0) break;
        text[length] = 0;
        char *line = text, *stop;
        /* A line that is still being written has no end yet: it is read the next time. */
        for (; (stop = strchr(line, '\n')); line = stop + 1) {
            long long at;
            if (sscanf(line, "%lld %lf", &at, &value) == 2) add_change(board, LOAD, at - start_ns, share(value), 0);
        }
        if (line == text) break;
        board->shared->load_offset += line - text;
    }
    close(fd);
}

static void observe_lock(Board *board, ChangeKind kind, const char *name) {
    char path[4096], text[64];
    double low = 0, high = 0;
    int64_t modified = since_start();
    state_path(path, sizeof path, name, (int)board->index);
    read_text(path, text, sizeof text, &modified);
    if (sscanf(text, "%lf %lf", &low, &high) != 2) low = high = 0, modified = since_start();
    /* A file's time is as coarse as the kernel's tick: of two changes within one, the second must not come first. */
    int64_t last = change_at(board, kind, FOREVER)->t;
    if (modified < last) modified = last;
    add_change(board, kind, modified, low, high);
}

static void observe_settings(Board *board) {
    char path[4096], text[sizeof board->set_text];
    state_path(path, sizeof path, "set", (int)board->index);
    read_text(path, text, sizeof text, NULL);
    if (!strcmp(text, board->set_text)) return;
    strcpy(board->set_text, text);
    board->config = board->base;
    board->set_wrong = !scenario_apply(path, text, &board->config);
}

void observe(Board *board) {
    observe_settings(board);
    observe_load(board);
    observe_lock(board, GPU_LOCK, "gpu_lock");
    observe_lock(board, MEMORY_LOCK, "memory_lock");
}

/* ---- what it does ---- */

double value_at(const Timeline *line, int64_t t, double otherwise) {
    if (!line->count || t < line->points[0].t) return otherwise;
    int i = line->count - 1;
    while (line->points[i].t > t) i--;
    const Point *here = &line->points[i], *next = here + 1;
    if (i + 1 == line->count || !next->ramp) return here->value;
    return here->value + (next->value - here->value) * (double)(t - here->t) / (double)(next->t - here->t);
}

static int64_t repeated(const Config *config, int64_t t) {
    int64_t period = (int64_t)(config->power_repeat_s * NS_PER_S);
    return period > 0 && t > 0 ? t % period : t;
}

static double snapped(const Clocks *clocks, double mhz) {
    for (int i = 0; i < clocks->count; i++)
        if (clocks->mhz[i] <= mhz) return clocks->mhz[i];
    return clocks->count ? clocks->mhz[clocks->count - 1] : mhz;
}

static double highest(const Clocks *clocks, double otherwise) { return clocks->count ? clocks->mhz[0] : otherwise; }
static double lowest(const Clocks *clocks) { return clocks->count ? clocks->mhz[clocks->count - 1] : 0; }
static double chosen(double value, double otherwise) { return value == UNSET ? otherwise : value; }
static double within(double value, double low, double high) { return fmax(low, fmin(value, high)); }

static double load_at(const Board *board, int64_t t) {
    double told = change_at(board, LOAD, t)->a;
    return told == UNSET ? share(value_at(&board->config.load, t, 0)) : told;
}

static double locked_clock(const Board *board, ChangeKind kind, int64_t t, const Clocks *clocks, double free_mhz,
                           bool *locked) {
    double low, high;
    lock_at(board, kind, t, &low, &high);
    *locked = high > 0;
    return *locked ? snapped(clocks, within(free_mhz, low, high)) : free_mhz;
}

/* The SM clock before power and heat have their say. */
static double wanted_clock(const Board *board, int64_t t, bool busy, bool *locked) {
    const Config *config = &board->config;
    double idle = chosen(config->idle_mhz, lowest(&config->sm_clocks));
    double mhz = busy ? chosen(config->boost_mhz, highest(&config->sm_clocks, 0)) : idle;
    double held = locked_clock(board, GPU_LOCK, t, &config->sm_clocks, mhz, locked);
    return busy || config->follows_lock_idle ? held : mhz;
}

/* What the driver gives a clock up for at a time that the scenario names; sync boost only says so. */
static double throttled(const Config *config, int64_t t, double mhz, unsigned long long *reasons) {
    unsigned reason = (unsigned)value_at(&config->throttle, t, 0);
    *reasons |= reason;
    double lower = chosen(config->throttled_mhz, highest(&config->sm_clocks, mhz) / 2);
    return reason & ~(unsigned)REASON_SYNC_BOOST ? snapped(&config->sm_clocks, fmin(mhz, lower)) : mhz;
}

/* Power = idle + loaded (with a process on it) + clocked · (how far the clock is above idle) + dynamic · load ·
 * (f / fmax)^exponent; a waveform stands in for all but the last. Above the limit the clock gives way: what is above
 * idle is taken to fall with f^exponent. */
Operation operation_at(const Board *board, int64_t t) {
    const Config *config = &board->config;
    Operation now = {.load = load_at(board, t)};
    double wave = value_at(&config->power, repeated(config, t), config->idle_w);
    bool busy = now.load > 0 || wave > config->idle_w, locked, memory_locked;
    double mhz = throttled(config, t, wanted_clock(board, t, busy, &locked), &now.reasons);
    double drift = value_at(&config->drift, t, 0);
    if (drift > 0) mhz = fmin(mhz, drift);
    double most = highest(&config->sm_clocks, fmax(mhz, 1)), idle = chosen(config->idle_mhz, lowest(&config->sm_clocks));
    double fixed = config->idle_w, varying = config->dynamic_w * now.load * pow(mhz / most, config->exponent);
    if (config->power.count) varying += wave - config->idle_w;
    else {
        fixed += config->processes.count ? config->loaded_w : 0;
        fixed += most > idle ? config->clocked_w * within((mhz - idle) / (most - idle), 0, 1) : 0;
    }
    now.watts = fixed + varying;
    if (now.watts > config->limit_w && varying > 0) {
        double room = fmax(config->limit_w - fixed, 0);
        double lower = snapped(&config->sm_clocks, mhz * pow(room / varying, 1 / config->exponent));
        now.watts = fmin(fixed + varying * pow(fmin(lower / mhz, 1), config->exponent), config->limit_w);
        now.reasons |= REASON_POWER_CAP;
        mhz = fmin(mhz, lower);
    }
    now.sm_mhz = mhz;
    double memory = highest(&config->memory_clocks, 0);
    now.memory_mhz = locked_clock(board, MEMORY_LOCK, t, &config->memory_clocks,
                                  busy ? memory : chosen(config->memory_idle_mhz, memory), &memory_locked);
    if (!busy) now.reasons |= REASON_IDLE;
    if (locked) now.reasons |= REASON_LOCKED;
    return now;
}

double temperature_at(const Board *board, int64_t t) {
    const Config *config = &board->config;
    Operation now = operation_at(board, t);
    double degrees = value_at(&config->temperature, t, 35);
    degrees += config->heating_k_per_w * (now.watts - config->idle_w);
    bool hot = now.reasons & (REASON_SW_THERMAL | REASON_HW_THERMAL);
    return hot ? fmax(degrees, config->slowdown_c) : degrees;
}

/* ---- what its sensors have seen ---- */

static int64_t next_point(const Timeline *line, int64_t t) {
    for (int i = 0; i < line->count; i++)
        if (line->points[i].t > t) return line->points[i].t;
    return FOREVER;
}

static bool ramps(const Timeline *line, int64_t t) {
    for (int i = 0; i < line->count; i++)
        if (line->points[i].t > t) return i > 0 && line->points[i].ramp;
    return false;
}

static int64_t later_than(double seconds, int64_t t) {
    int64_t at = (int64_t)(seconds * NS_PER_S);
    return seconds >= 0 && at > t ? at : FOREVER;
}

/* Until when nothing but a ramp changes; ramps are taken in steps of 1 ms. */
static int64_t steady_until(const Board *board, int64_t t) {
    const Config *config = &board->config;
    int64_t local = repeated(config, t), until = next_point(&config->power, local);
    if (local != t) until = earlier(until, (int64_t)(config->power_repeat_s * NS_PER_S));
    else until = earlier(until, later_than(config->power_repeat_s > 0 ? config->power_repeat_s : UNSET, t));
    if (until != FOREVER) until += t - local;
    if (ramps(&config->power, local) || ramps(&config->load, t)) until = earlier(until, t + NS_PER_S / 1000);
    until = earlier(until, next_point(&config->load, t));
    until = earlier(until, next_point(&config->drift, t));
    until = earlier(until, next_point(&config->throttle, t));
    until = earlier(until, later_than(config->energy_stall_s, t));
    until = earlier(until, later_than(config->energy_fall_s, t));
    for (int i = 0; i < board->shared->count; i++)
        if (board->shared->changes[i].t > t) return earlier(until, board->shared->changes[i].t);
    return until;
}

typedef struct { double joules, load_s; } Sum;

static Sum sum_between(const Board *board, int64_t from, int64_t to) {
    Sum sum = {0, 0};
    for (int64_t until; from < to; from = until) {
        until = earlier(to, steady_until(board, from));
        Operation now = operation_at(board, from + (until - from) / 2);
        double seconds = (double)(until - from) / NS_PER_S;
        sum.joules += now.watts * seconds;
        sum.load_s += now.load * seconds;
    }
    return sum;
}

static bool reached(double seconds, int64_t t) { return seconds >= 0 && t >= (int64_t)(seconds * NS_PER_S); }

static void integrate(Board *board, int64_t to) {
    const Config *config = &board->config;
    Shared *shared = board->shared;
    for (int64_t from = shared->integrated_to, until; from < to; from = until) {
        until = earlier(to, steady_until(board, from));
        if (from == (int64_t)(config->energy_fall_s * NS_PER_S)) shared->counter_j = 0;
        Operation now = operation_at(board, from + (until - from) / 2);
        double seconds = (double)(until - from) / NS_PER_S;
        if (!reached(config->energy_stall_s, from)) shared->counter_j += now.watts * config->energy_gain * seconds;
        shared->load_s += now.load * seconds;
        if (now.reasons & REASON_POWER_CAP) shared->capped_s += seconds;
        if (now.reasons & (REASON_SW_THERMAL | REASON_HW_THERMAL)) shared->thermal_s += seconds;
        if (now.reasons & REASON_SYNC_BOOST) shared->sync_s += seconds;
        if (now.reasons & REASON_SW_THERMAL) shared->sw_thermal_s += seconds;
        if (now.reasons & REASON_HW_THERMAL) shared->hw_thermal_s += seconds;
        if (now.reasons & REASON_POWER_BRAKE) shared->brake_s += seconds;
        shared->integrated_to = until;
    }
}

double counter_joules(const Board *board) { return board->shared->counter_j; }

double load_integral(const Board *board, int64_t now) {
    return board->shared->load_s + sum_between(board, board->shared->integrated_to, now).load_s;
}

/* The same for every process that asks in the same tick: a reading is noisy, not random. */
static double noise(const Board *board, int64_t tick) {
    uint64_t mixed = ((uint64_t)tick ^ (uint64_t)board->index << 56) * 0x9e3779b97f4a7c15ULL;
    mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ULL;
    return (double)(mixed >> 11) / (double)(1ULL << 52) - 1;
}

double mean_watts(const Board *board, int64_t now, double window_ms) {
    int64_t tick = tick_before(now, board->config.power_period_ms), window = (int64_t)(window_ms * 1e6);
    double watts = window > 0 ? sum_between(board, tick - window, tick).joules * NS_PER_S / (double)window
                              : operation_at(board, tick).watts;
    return fmax(watts + board->config.noise_w * noise(board, tick), 0);
}

/* ---- shared between processes ---- */

bool board_open(Board *board) {
    char path[4096];
    if (!state_path(path, sizeof path, "board", (int)board->index)) return false;
    board->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (board->fd < 0 || flock(board->fd, LOCK_EX)) return false;
    bool open = !ftruncate(board->fd, sizeof(Shared));
    void *mapped = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, board->fd, 0);
    open = open && mapped != MAP_FAILED;
    if (open) {
        board->shared = mapped;
        if (board->shared->magic != MAGIC) {
            *board->shared = (Shared){.magic = MAGIC, .counter_j = board->base.energy_start_j};
            board->shared->before[LOAD].a = UNSET;
            for (int kind = 0; kind < CHANGE_KINDS; kind++) board->shared->before[kind].kind = (ChangeKind)kind;
        }
    }
    flock(board->fd, LOCK_UN);
    return open;
}

void board_close(Board *board) {
    if (board->shared) munmap(board->shared, sizeof(Shared));
    if (board->fd >= 0) close(board->fd);
    board->shared = NULL;
    board->fd = -1;
}

bool board_enter(Board *board) {
    while (flock(board->fd, LOCK_EX))
        if (errno != EINTR) return false;
    observe(board);
    if (board->set_wrong) {
        flock(board->fd, LOCK_UN);
        return false;
    }
    integrate(board, tick_before(since_start(), board->config.energy_period_ms));
    return true;
}

void board_leave(Board *board) { flock(board->fd, LOCK_UN); }
