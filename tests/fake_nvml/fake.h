/* What the parts of the fake driver library share: the scenario as it was read, and a board as it is now. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, TIMEOUT = 10, VERSION_MISMATCH = 25, UNKNOWN = 999
};

enum {
    MAX_BOARDS = 16, MAX_CLOCKS = 512, MAX_POINTS = 64, MAX_RULES = 32, MAX_PROCESSES = 32, MAX_MIG = 8, MAX_GPM = 32,
    MAX_CHANGES = 4096
};

#define NS_PER_S 1000000000LL
#define FOREVER INT64_MAX
#define UNSET (-1.0)
#define OFF (-1)

/* A value over time: steps, and ramps that reach a value at a point. Times are ns since the start stamp. */
typedef struct { int64_t t; double value; bool ramp; } Point;
typedef struct { int count; Point points[MAX_POINTS]; } Timeline;

typedef struct { int count; unsigned mhz[MAX_CLOCKS]; } Clocks; /* descending, as NVML lists them */

/* One `error.` or `latency.` line; latency rules have code SUCCESS. */
typedef struct {
    char function[64];
    int code;
    double latency_ms;
    long first, last; /* of the calls of this process, counted from 1 */
    int64_t after, until;
} Rule;
typedef struct { int count; Rule rules[MAX_RULES]; } Rules;

typedef struct { long pid; double mib; } Process; /* pid 0: whoever asks; mib < 0: not known to the driver */
typedef struct { int count; Process list[MAX_PROCESSES]; } Processes;

typedef struct { char uuid[96]; unsigned gpu_instance, compute_instance; double mib; } MigDevice;
typedef struct { int count; MigDevice devices[MAX_MIG]; } MigDevices;

typedef struct { int count; unsigned id[MAX_GPM]; double percent[MAX_GPM]; } Gpm;

typedef struct {
    char name[96], uuid[96], pci[32], serial[32], compute_capability[16], architecture[16];
    double memory_mib, memory_reserved_mib, memory_used_mib;
    double limit_w, limit_management_w, limit_default_w, limit_min_w, limit_max_w;
    Clocks sm_clocks, memory_clocks;
    double idle_mhz, boost_mhz, memory_idle_mhz;
    double pstate_idle;
    bool follows_lock_idle, persistence;
    /* power */
    double idle_w, loaded_w, clocked_w, dynamic_w, exponent, noise_w;
    Timeline power, load, drift, throttle;
    double power_repeat_s, throttled_mhz;
    /* sensors */
    int energy, power_usage, power_instant, power_average;
    double energy_period_ms, energy_start_j, energy_gain, energy_stall_s, energy_fall_s;
    double power_period_ms, usage_window_ms, instant_window_ms, average_window_ms;
    /* state */
    Timeline temperature, memory_temperature, utilization_gpu, utilization_memory;
    double heating_k_per_w, slowdown_c, shutdown_c, gpu_max_c;
    Processes processes, graphics_processes;
    int ecc;
    Timeline corrected_volatile, corrected_aggregate, uncorrected_volatile, uncorrected_aggregate;
    double retired_single, retired_double;
    bool retired_pending;
    double remapped_corrected, remapped_uncorrected;
    bool remap_pending, remap_failed;
    Timeline xid;
    int mig; /* SUCCESS: on; OFF; or the code that the driver answers with, as for ecc */
    MigDevices mig_devices;
    bool gpm;
    Gpm gpm_metrics;
    Rules rules;
} Config;

typedef struct {
    char driver[80], nvml[80];
    double cuda;
    bool permitted;
    Rules rules;
    int count;
    Config boards[MAX_BOARDS];
} Scenario;

/* A change of what the board was told from outside: its load, or a lock of its clocks (0, 0: none). */
typedef enum { LOAD, GPU_LOCK, MEMORY_LOCK, CHANGE_KINDS } ChangeKind;
typedef struct { int64_t t; ChangeKind kind; double a, b; } Change;

/* What all processes agree on, in a mapped file; guarded by a lock on that file, which a killed process lets go. */
typedef struct {
    uint64_t magic;
    int64_t integrated_to; /* a tick of the energy counter */
    double counter_j;
    double capped_s, thermal_s, sync_s, sw_thermal_s, hw_thermal_s, brake_s, load_s;
    int64_t load_offset; /* how much of a load file with times has been taken in */
    Change before[CHANGE_KINDS]; /* what held before the first of the changes */
    int count;
    Change changes[MAX_CHANGES];
} Shared;

typedef struct Board Board;
typedef struct { Board *board; int number; } MigHandle;
struct Board {
    unsigned index;
    Config base, config; /* as the scenario has it; with set.<index> applied */
    char set_text[8192];
    bool set_wrong;
    Shared *shared;
    int fd;
    MigHandle mig[MAX_MIG];
};

/* What a board does at one time. */
typedef struct {
    double load, watts, sm_mhz, memory_mhz;
    unsigned long long reasons;
} Operation;

enum {
    REASON_IDLE = 0x1, REASON_LOCKED = 0x2, REASON_POWER_CAP = 0x4, REASON_HW_SLOWDOWN = 0x8, REASON_SYNC_BOOST = 0x10,
    REASON_SW_THERMAL = 0x20, REASON_HW_THERMAL = 0x40, REASON_POWER_BRAKE = 0x80
};

#pragma GCC visibility push(hidden)

/* scenario.c */
bool scenario_read(const char *path, Scenario *into);
bool scenario_apply(const char *where, const char *text, Config *to);
int code_of(const char *name); /* -1: no such code */
const char *code_name(int code);

/* board.c */
extern char state_folder[];
int64_t monotonic_ns(void);
int64_t realtime_ns(void);
int64_t since_start(void);
bool start_stamp(void);
bool state_path(char *path, size_t size, const char *name, int index);
size_t read_text(const char *path, char *text, size_t size, int64_t *modified);
bool write_state(const char *name, int index, const char *text);
bool board_enter(Board *board); /* takes the lock, brings the board up to now; false: set.<index> or the state is unusable */
void board_leave(Board *board);
bool board_open(Board *board);
void board_close(Board *board);
void observe(Board *board);
Operation operation_at(const Board *board, int64_t t);
double value_at(const Timeline *line, int64_t t, double otherwise);
double mean_watts(const Board *board, int64_t now, double window_ms);
double counter_joules(const Board *board);
void lock_at(const Board *board, ChangeKind kind, int64_t t, double *low, double *high);
double load_integral(const Board *board, int64_t now);
double temperature_at(const Board *board, int64_t t);

#pragma GCC visibility pop

#endif
