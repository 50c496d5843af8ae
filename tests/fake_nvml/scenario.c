/* Reads a scenario: sections, `key = value` lines, comments after '#'. README.md describes the keys. */
#include "fake.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct { int code; const char *name; } CODES[] = {
    {0, "SUCCESS"}, {1, "UNINITIALIZED"}, {2, "INVALID_ARGUMENT"}, {3, "NOT_SUPPORTED"}, {4, "NO_PERMISSION"},
    {5, "ALREADY_INITIALIZED"}, {6, "NOT_FOUND"}, {7, "INSUFFICIENT_SIZE"}, {8, "INSUFFICIENT_POWER"},
    {9, "DRIVER_NOT_LOADED"}, {10, "TIMEOUT"}, {11, "IRQ_ISSUE"}, {12, "LIBRARY_NOT_FOUND"},
    {13, "FUNCTION_NOT_FOUND"}, {14, "CORRUPTED_INFOROM"}, {15, "GPU_IS_LOST"}, {16, "RESET_REQUIRED"},
    {17, "OPERATING_SYSTEM"}, {18, "LIB_RM_VERSION_MISMATCH"}, {19, "IN_USE"}, {20, "MEMORY"}, {21, "NO_DATA"},
    {22, "VGPU_ECC_NOT_SUPPORTED"}, {23, "INSUFFICIENT_RESOURCES"}, {24, "FREQ_NOT_SUPPORTED"},
    {25, "ARGUMENT_VERSION_MISMATCH"}, {26, "DEPRECATED"}, {27, "NOT_READY"}, {28, "GPU_NOT_FOUND"},
    {29, "INVALID_STATE"}, {999, "UNKNOWN"},
};

int code_of(const char *name) {
    for (size_t i = 0; i < sizeof CODES / sizeof *CODES; i++)
        if (!strcmp(CODES[i].name, name)) return CODES[i].code;
    return -1;
}

const char *code_name(int code) {
    for (size_t i = 0; i < sizeof CODES / sizeof *CODES; i++)
        if (CODES[i].code == code) return CODES[i].name;
    return "?";
}

typedef enum { TEXT, NUMBER, FLAG, CODE, TIMELINE, THROTTLE, CLOCKS, PROCESSES, MODE, MIG_DEVICE } Kind;

static const struct { const char *key; Kind kind; size_t offset, size; } KEYS[] = {
#define KEY(name, kind, member) {name, kind, offsetof(Config, member), sizeof(((Config *)0)->member)}
    KEY("name", TEXT, name), KEY("uuid", TEXT, uuid), KEY("pci", TEXT, pci), KEY("serial", TEXT, serial),
    KEY("compute_capability", TEXT, compute_capability), KEY("architecture", TEXT, architecture),
    KEY("memory_mib", NUMBER, memory_mib), KEY("memory_reserved_mib", NUMBER, memory_reserved_mib),
    KEY("memory_used_mib", NUMBER, memory_used_mib),
    KEY("limit_w", NUMBER, limit_w), KEY("limit_management_w", NUMBER, limit_management_w),
    KEY("limit_default_w", NUMBER, limit_default_w), KEY("limit_min_w", NUMBER, limit_min_w),
    KEY("limit_max_w", NUMBER, limit_max_w),
    KEY("sm_clocks", CLOCKS, sm_clocks), KEY("memory_clocks", CLOCKS, memory_clocks),
    KEY("idle_mhz", NUMBER, idle_mhz), KEY("boost_mhz", NUMBER, boost_mhz),
    KEY("memory_idle_mhz", NUMBER, memory_idle_mhz), KEY("pstate_idle", NUMBER, pstate_idle),
    KEY("follows_lock_idle", FLAG, follows_lock_idle), KEY("persistence", FLAG, persistence),
    KEY("idle_w", NUMBER, idle_w), KEY("loaded_w", NUMBER, loaded_w), KEY("clocked_w", NUMBER, clocked_w),
    KEY("dynamic_w", NUMBER, dynamic_w), KEY("exponent", NUMBER, exponent), KEY("noise_w", NUMBER, noise_w),
    KEY("power", TIMELINE, power), KEY("power_repeat_s", NUMBER, power_repeat_s), KEY("load", TIMELINE, load),
    KEY("drift", TIMELINE, drift), KEY("throttle", THROTTLE, throttle), KEY("throttled_mhz", NUMBER, throttled_mhz),
    KEY("energy", CODE, energy), KEY("power_usage", CODE, power_usage), KEY("power_instant", CODE, power_instant),
    KEY("power_average", CODE, power_average),
    KEY("energy_period_ms", NUMBER, energy_period_ms), KEY("energy_start_j", NUMBER, energy_start_j),
    KEY("energy_gain", NUMBER, energy_gain), KEY("energy_stall_s", NUMBER, energy_stall_s),
    KEY("energy_fall_s", NUMBER, energy_fall_s), KEY("power_period_ms", NUMBER, power_period_ms),
    KEY("usage_window_ms", NUMBER, usage_window_ms), KEY("instant_window_ms", NUMBER, instant_window_ms),
    KEY("average_window_ms", NUMBER, average_window_ms),
    KEY("temperature", TIMELINE, temperature), KEY("memory_temperature", TIMELINE, memory_temperature),
    KEY("utilization_gpu", TIMELINE, utilization_gpu), KEY("utilization_memory", TIMELINE, utilization_memory),
    KEY("heating_k_per_w", NUMBER, heating_k_per_w), KEY("slowdown_c", NUMBER, slowdown_c),
    KEY("shutdown_c", NUMBER, shutdown_c), KEY("gpu_max_c", NUMBER, gpu_max_c),
    KEY("processes", PROCESSES, processes), KEY("graphics_processes", PROCESSES, graphics_processes),
    KEY("ecc", MODE, ecc), KEY("ecc_corrected_volatile", TIMELINE, corrected_volatile),
    KEY("ecc_corrected_aggregate", TIMELINE, corrected_aggregate),
    KEY("ecc_uncorrected_volatile", TIMELINE, uncorrected_volatile),
    KEY("ecc_uncorrected_aggregate", TIMELINE, uncorrected_aggregate),
    KEY("retired_single", NUMBER, retired_single), KEY("retired_double", NUMBER, retired_double),
    KEY("retired_pending", FLAG, retired_pending), KEY("remapped_corrected", NUMBER, remapped_corrected),
    KEY("remapped_uncorrected", NUMBER, remapped_uncorrected), KEY("remap_pending", FLAG, remap_pending),
    KEY("remap_failed", FLAG, remap_failed), KEY("xid", TIMELINE, xid),
    KEY("mig", MODE, mig), KEY("mig_device", MIG_DEVICE, mig_devices), KEY("gpm", FLAG, gpm),
#undef KEY
};

static const struct { const char *name; unsigned reasons; } THROTTLES[] = {
    {"off", 0}, {"power_cap", REASON_POWER_CAP}, {"sw_thermal", REASON_SW_THERMAL},
    {"hw_thermal", REASON_HW_THERMAL | REASON_HW_SLOWDOWN}, {"power_brake", REASON_POWER_BRAKE | REASON_HW_SLOWDOWN},
    {"sync_boost", REASON_SYNC_BOOST},
};

static bool number(const char *text, double *value) {
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return end != text && !*end && !errno && isfinite(*value);
}

static bool flag(const char *text, bool *value) {
    *value = !strcmp(text, "yes") || !strcmp(text, "on");
    return *value || !strcmp(text, "no") || !strcmp(text, "off");
}

static bool throttle(const char *text, double *value) {
    for (size_t i = 0; i < sizeof THROTTLES / sizeof *THROTTLES; i++)
        if (!strcmp(THROTTLES[i].name, text)) return *value = THROTTLES[i].reasons, true;
    return false;
}

/* `5`, or `0:5 2.5:8 4/20`: 5 from the start, 8 from 2.5 s, then a ramp that reaches 20 at 4 s. */
static bool timeline(char *text, bool (*read)(const char *, double *), Timeline *line) {
    line->count = 0;
    char *rest = text;
    for (char *word; (word = strsep(&rest, " \t,"));) {
        if (!*word) continue;
        if (line->count == MAX_POINTS) return false;
        Point *point = &line->points[line->count];
        char *mark = strpbrk(word, ":/");
        double at = 0;
        point->ramp = mark && *mark == '/';
        if (mark) {
            *mark = 0;
            if (!number(word, &at)) return false;
        } else if (line->count) return false;
        if (!read(mark ? mark + 1 : word, &point->value)) return false;
        point->t = (int64_t)llround(at * NS_PER_S);
        if (line->count && point->t < point[-1].t) return false;
        line->count++;
    }
    return true;
}

static int descending(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x < y) - (x > y);
}

/* `345:1980:15`, or `1215 810`. Steps may be fractions: a board that steps by 7.5 MHz lists whole MHz, cut off. */
static bool clocks(char *text, Clocks *into) {
    double low, high, step;
    int used;
    into->count = 0;
    if (sscanf(text, "%lf:%lf:%lf%n", &low, &high, &step, &used) == 3 && !text[used]) {
        if (!(step > 0) || high < low || (high - low) / step >= MAX_CLOCKS) return false;
        for (int i = 0; low + i * step <= high + 1e-6; i++) into->mhz[into->count++] = (unsigned)(low + i * step);
    } else {
        char *rest = text;
        for (char *word; (word = strsep(&rest, " \t,"));) {
            double mhz;
            if (!*word) continue;
            if (into->count == MAX_CLOCKS || !number(word, &mhz) || mhz < 1) return false;
            into->mhz[into->count++] = (unsigned)mhz;
        }
    }
    qsort(into->mhz, (size_t)into->count, sizeof *into->mhz, descending);
    return true;
}

/* `4711:2048 self:512 99:unknown`: process ids and MiB. */
static bool processes(char *text, Processes *into) {
    into->count = 0;
    char *rest = text;
    for (char *word; (word = strsep(&rest, " \t,"));) {
        if (!*word) continue;
        char *mark = strchr(word, ':');
        double pid = 0, mib = UNSET;
        if (!mark || into->count == MAX_PROCESSES) return false;
        *mark = 0;
        if (strcmp(word, "self") && (!number(word, &pid) || pid < 1)) return false;
        if (strcmp(mark + 1, "unknown") && (!number(mark + 1, &mib) || mib < 0)) return false;
        into->list[into->count++] = (Process){(long)pid, mib};
    }
    return true;
}

/* `MIG-uuid GPU-INSTANCE COMPUTE-INSTANCE MIB`, one line a device; `none` forgets those before. */
static bool mig_device(const char *text, MigDevices *into) {
    if (!strcmp(text, "none")) return into->count = 0, true;
    if (into->count == MAX_MIG) return false;
    MigDevice *device = &into->devices[into->count];
    int used = 0;
    if (sscanf(text, "%95s %u %u %lf%n", device->uuid, &device->gpu_instance, &device->compute_instance, &device->mib,
               &used) != 4 || text[used])
        return false;
    into->count++;
    return true;
}

/* `CODE [call N | from N | after SECONDS | until SECONDS]...`; `none` forgets the function's rules. */
static bool rule(const char *function, char *text, bool latency, Rules *into) {
    char *rest = text, *word = strsep(&rest, " \t");
    Rule made = {.first = 1, .last = -1, .until = FOREVER};
    if (strlen(function) >= sizeof made.function || !*function) return false;
    strcpy(made.function, function);
    if (!strcmp(word, "none") && !rest) {
        int kept = 0;
        for (int i = 0; i < into->count; i++)
            if (strcmp(into->rules[i].function, function) || (into->rules[i].code == SUCCESS) != latency)
                into->rules[kept++] = into->rules[i];
        into->count = kept;
        return true;
    }
    if (latency) {
        if (!number(word, &made.latency_ms) || made.latency_ms < 0) return false;
    } else if ((made.code = code_of(word)) <= 0) return false;
    while (rest && (word = strsep(&rest, " \t"))) {
        double value;
        if (!*word) continue;
        char *amount = rest ? strsep(&rest, " \t") : NULL;
        if (!amount || !number(amount, &value)) return false;
        if (!strcmp(word, "call")) made.first = made.last = (long)value;
        else if (!strcmp(word, "from")) made.first = (long)value;
        else if (!strcmp(word, "after")) made.after = (int64_t)(value * NS_PER_S);
        else if (!strcmp(word, "until")) made.until = (int64_t)(value * NS_PER_S);
        else return false;
    }
    if (into->count == MAX_RULES) return false;
    into->rules[into->count++] = made;
    return true;
}

/* `error.FUNCTION` and `latency.FUNCTION_ms`; -1: the key is neither. */
static int rule_line(char *key, char *value, Rules *into) {
    if (!strncmp(key, "error.", 6)) return rule(key + 6, value, false, into);
    size_t length = strlen(key);
    if (strncmp(key, "latency.", 8) || length < 12 || strcmp(key + length - 3, "_ms")) return -1;
    key[length - 3] = 0;
    return rule(key + 8, value, true, into);
}

static bool gpm_metric(const char *key, const char *value, Gpm *into) {
    double id, percent;
    if (!number(key, &id) || !number(value, &percent)) return false;
    int i = 0;
    while (i < into->count && into->id[i] != (unsigned)id) i++;
    if (i == MAX_GPM) return false;
    if (i == into->count) into->count++;
    into->id[i] = (unsigned)id;
    into->percent[i] = percent;
    return true;
}

/* `yes`, `no`, or the name of the code that the driver answers with. */
static bool mode(const char *text, int off, int *into) {
    bool on;
    if (flag(text, &on)) return *into = on ? SUCCESS : off, true;
    return (*into = code_of(text)) > 0;
}

static const char *board_line(char *key, char *value, Config *to) {
    const char *wrong = "has a value that cannot be read";
    int ruled = rule_line(key, value, &to->rules);
    if (ruled >= 0) return ruled ? NULL : wrong;
    if (!strncmp(key, "gpm.", 4)) return gpm_metric(key + 4, value, &to->gpm_metrics) ? NULL : wrong;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        if (strcmp(KEYS[i].key, key)) continue;
        char *member = (char *)to + KEYS[i].offset;
        bool right = false;
        switch (KEYS[i].kind) {
        case TEXT: right = strlen(value) < KEYS[i].size; if (right) strcpy(member, value); break;
        case NUMBER: right = number(value, (double *)(void *)member); break;
        case FLAG: right = flag(value, (bool *)member); break;
        case CODE: right = mode(value, NOT_SUPPORTED, (int *)(void *)member); break;
        case MODE: right = mode(value, OFF, (int *)(void *)member); break;
        case TIMELINE: right = timeline(value, number, (Timeline *)(void *)member); break;
        case THROTTLE: right = timeline(value, throttle, (Timeline *)(void *)member); break;
        case CLOCKS: right = clocks(value, (Clocks *)(void *)member); break;
        case PROCESSES: right = processes(value, (Processes *)(void *)member); break;
        case MIG_DEVICE: right = mig_device(value, (MigDevices *)(void *)member); break;
        }
        return right ? NULL : wrong;
    }
    return "is no key of a board";
}

static const char *system_line(char *key, char *value, Scenario *to) {
    const char *wrong = "has a value that cannot be read";
    int ruled = rule_line(key, value, &to->rules);
    if (ruled >= 0) return ruled ? NULL : wrong;
    if (!strcmp(key, "driver") || !strcmp(key, "nvml")) {
        char *into = *key == 'd' ? to->driver : to->nvml;
        return strlen(value) < sizeof to->driver ? (strcpy(into, value), NULL) : wrong;
    }
    if (!strcmp(key, "cuda")) return number(value, &to->cuda) ? NULL : wrong;
    if (!strcmp(key, "permission")) {
        to->permitted = !strcmp(value, "root");
        return to->permitted || !strcmp(value, "none") ? NULL : "must be root or none";
    }
    return "is no key of the system section";
}

static void defaults(Config *board, unsigned index) {
    *board = (Config){
        .name = "NVIDIA Fake GPU", .compute_capability = "9.0", .architecture = "hopper", .memory_mib = 80 * 1024,
        .memory_used_mib = UNSET, .limit_w = 700, .limit_management_w = UNSET, .limit_default_w = UNSET,
        .limit_min_w = UNSET, .limit_max_w = UNSET, .idle_mhz = UNSET, .boost_mhz = UNSET, .memory_idle_mhz = UNSET,
        .follows_lock_idle = true, .persistence = true, .idle_w = 50, .dynamic_w = 500, .exponent = 2.4,
        .throttled_mhz = UNSET, .energy_period_ms = 100, .energy_gain = 1, .energy_stall_s = UNSET,
        .energy_fall_s = UNSET, .power_period_ms = 100, .usage_window_ms = 1000, .instant_window_ms = 25,
        .average_window_ms = 1000, .slowdown_c = 87, .shutdown_c = 92, .gpu_max_c = 85, .mig = NOT_SUPPORTED,
    };
    board->sm_clocks.count = board->memory_clocks.count = 0;
    snprintf(board->uuid, sizeof board->uuid, "GPU-fa4e0000-0000-4000-8000-%012u", index);
    snprintf(board->pci, sizeof board->pci, "00000000:%02X:00.0", 0x10 + index * 0x10);
    snprintf(board->serial, sizeof board->serial, "16530000000%02u", index);
}

static char *trimmed(char *text) {
    while (isspace((unsigned char)*text)) text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
    return text;
}

static bool complain(const char *where, int line, const char *key, const char *what) {
    fprintf(stderr, "fake nvml: %s, line %d: %s %s.\n", where, line, key, what);
    return false;
}

/* One `key = value` line; the key and the value, or NULL when it is empty or no such line (then *wrong is set). */
static char *split(char *line, char **value, bool *wrong) {
    char *comment = strchr(line, '#');
    if (comment) *comment = 0;
    line = trimmed(line);
    char *equals = strchr(line, '=');
    *wrong = *line && !equals;
    if (!*line || !equals) return NULL;
    *equals = 0;
    *value = trimmed(equals + 1);
    return trimmed(line);
}

/* Another board's keys, but for what makes a board that very board. */
static void like(Config *to, const Config *model) {
    Config own = *to;
    *to = *model;
    memcpy(to->uuid, own.uuid, sizeof own.uuid);
    memcpy(to->pci, own.pci, sizeof own.pci);
    memcpy(to->serial, own.serial, sizeof own.serial);
}

bool scenario_apply(const char *where, const char *text, Config *to) {
    char *copy = strdup(text), *rest = copy, *value;
    bool right = copy != NULL, wrong;
    int line = 0;
    for (char *word; right && (word = strsep(&rest, "\n"));) {
        line++;
        char *key = split(word, &value, &wrong);
        if (wrong) right = complain(where, line, "this", "is no `key = value` line");
        if (!key) continue;
        const char *problem = board_line(key, value, to);
        if (problem) right = complain(where, line, key, problem);
    }
    free(copy);
    return right;
}

static bool section(const char *name, Scenario *into, Config **board, bool *every) {
    unsigned index;
    int used = 0;
    *board = NULL;
    *every = !strcmp(name, "boards");
    if (*every || !strcmp(name, "system")) return true;
    if (sscanf(name, "board %u%n", &index, &used) != 1 || name[used] || index >= MAX_BOARDS) return false;
    if (index > (unsigned)into->count) return false;
    if (index == (unsigned)into->count) defaults(&into->boards[into->count++], index);
    *board = &into->boards[index];
    return true;
}

bool scenario_read(const char *path, Scenario *into) {
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "fake nvml: cannot read the scenario %s: %s.\n", path, strerror(errno));
        return false;
    }
    *into = (Scenario){.driver = "580.82.07", .nvml = "13.580.82.07", .cuda = 13000, .permitted = true};
    char line[8192], again[8192];
    Config *board = NULL;
    bool right = true, every = false, wrong;
    for (int number_ = 1; right && fgets(line, sizeof line, file); number_++) {
        char *text = trimmed(line), *value, *end = text + strcspn(text, "#");
        if (*text == '[') {
            *end = 0;
            text = trimmed(text);
            size_t length = strlen(text);
            bool closed = text[length - 1] == ']';
            if (closed) text[length - 1] = 0;
            if (!closed || !section(text + 1, into, &board, &every))
                right = complain(path, number_, text, "is no section: [system], [boards] or [board N], counted from 0");
            continue;
        }
        char *key = split(text, &value, &wrong);
        if (wrong) right = complain(path, number_, "this", "is no `key = value` line");
        if (!key) continue;
        const char *problem = NULL;
        double model;
        if (every) {
            for (int i = 0; i < into->count && !problem; i++) {
                char name[128];
                snprintf(name, sizeof name, "%s", key);
                snprintf(again, sizeof again, "%s", value);
                problem = board_line(name, again, &into->boards[i]);
            }
        } else if (!board) problem = system_line(key, value, into);
        else if (strcmp(key, "like")) problem = board_line(key, value, board);
        else if (!number(value, &model) || model < 0 || model >= into->count) problem = "names no board before this";
        else like(board, &into->boards[(int)model]);
        if (problem) right = complain(path, number_, key, problem);
    }
    fclose(file);
    return right;
}
