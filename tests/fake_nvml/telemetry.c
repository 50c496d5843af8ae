/* More functions of NVML: field values, MIG, events, GPM. */
#include "calls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- field values ---- */

enum { TYPE_DOUBLE, TYPE_UNSIGNED, TYPE_UNSIGNED_LONG, TYPE_U64 };

typedef struct {
    unsigned id, scope;
    int64_t timestamp_us, latency_us;
    unsigned type;
    Return result;
    union { double real; unsigned small; u64 large; } value;
} FieldValue;

static Return nanoseconds(FieldValue *field, double seconds) {
    field->type = TYPE_U64;
    field->value.large = (u64)(seconds * NS_PER_S);
    return SUCCESS;
}

static Return whole(FieldValue *field, double value) {
    field->type = TYPE_UNSIGNED;
    return told(&field->value.small, value);
}

static Return count(FieldValue *field, double value) {
    field->type = TYPE_U64;
    field->value.large = (u64)value;
    return SUCCESS;
}

static Return ecc_count(FieldValue *field, const Config *config, const Timeline *errors) {
    if (config->ecc) return config->ecc > 0 ? config->ecc : NOT_SUPPORTED;
    return count(field, value_at(errors, since_start(), 0));
}

static Return power_field(FieldValue *field, const Board *board, Return supported, double window_ms) {
    return supported ? supported : whole(field, 1e3 * mean_watts(board, since_start(), window_ms));
}

static Return field_of(FieldValue *field, const Board *board) {
    const Config *config = &board->config;
    const Shared *seen = board->shared;
    switch (field->id) {
    case 1: case 2: return config->ecc > 0 ? config->ecc : whole(field, config->ecc == SUCCESS);
    case 3: return ecc_count(field, config, &config->corrected_volatile);
    case 4: return ecc_count(field, config, &config->uncorrected_volatile);
    case 5: return ecc_count(field, config, &config->corrected_aggregate);
    case 6: return ecc_count(field, config, &config->uncorrected_aggregate);
    case 29: return whole(field, config->retired_single);
    case 30: return whole(field, config->retired_double);
    case 31: return whole(field, config->retired_pending);
    case 74: return nanoseconds(field, seen->capped_s);
    case 75: return nanoseconds(field, seen->thermal_s);
    case 76: return nanoseconds(field, seen->sync_s);
    case 82:
        return config->memory_temperature.count ? whole(field, value_at(&config->memory_temperature, since_start(), 0))
                                                : NOT_SUPPORTED;
    case 83:
        if (config->energy) return config->energy;
        return count(field, round(1e3 * counter_joules(board)));
    case 142: return whole(field, config->remapped_corrected);
    case 143: return whole(field, config->remapped_uncorrected);
    case 144: return whole(field, config->remap_pending);
    case 145: return whole(field, config->remap_failed);
    case 185: return power_field(field, board, config->power_average, config->average_window_ms);
    case 186: return power_field(field, board, config->power_instant, config->instant_window_ms);
    case 187: return whole(field, 1e3 * or_limit(config, config->limit_min_w));
    case 188: return whole(field, 1e3 * or_limit(config, config->limit_max_w));
    case 189: return whole(field, 1e3 * or_limit(config, config->limit_default_w));
    case 190: return whole(field, 1e3 * config->limit_w);
    case 192: return whole(field, 1e3 * or_limit(config, config->limit_management_w));
    case 269: return nanoseconds(field, seen->sw_thermal_s);
    case 270: return nanoseconds(field, seen->hw_thermal_s);
    case 271: return nanoseconds(field, seen->brake_s);
    default: return NOT_SUPPORTED;
    }
}

/* Each field carries a code of its own: `error.field.186 = NOT_SUPPORTED` in a scenario. */
Return nvmlDeviceGetFieldValues(Device handle, int number, FieldValue *fields) {
    char asked[80] = "";
    for (int i = 0, used = 0; i < number && used < 70; i++)
        used += snprintf(asked + used, sizeof asked - (size_t)used, i ? ",%u" : "%u", fields[i].id);
    BEGIN_BOARD(handle, "%s", asked);
    for (int i = 0; i < number; i++) {
        char name[32];
        snprintf(name, sizeof name, "field.%u", fields[i].id);
        int64_t before = monotonic_ns();
        Return ruled = field_rule(board, name);
        fields[i].result = ruled ? ruled : field_of(&fields[i], board);
        fields[i].timestamp_us = realtime_ns() / 1000;
        fields[i].latency_us = (monotonic_ns() - before) / 1000;
    }
    END(SUCCESS);
}

/* ---- MIG ---- */

Return nvmlDeviceGetMigMode(Device handle, unsigned *current, unsigned *pending) {
    BEGIN_BOARD(handle, "");
    if (config->mig > 0) END(config->mig);
    *current = *pending = config->mig == SUCCESS;
    END(SUCCESS);
}

Return nvmlDeviceIsMigDeviceHandle(Device handle, unsigned *is) {
    BEGIN(ANY_DEVICE, handle, "");
    *is = mig_of(handle) != NULL;
    END(SUCCESS);
}

Return nvmlDeviceGetMaxMigDeviceCount(Device handle, unsigned *most) {
    BEGIN_BOARD(handle, "");
    END(told(most, config->mig > 0 ? 0 : 7));
}

Return nvmlDeviceGetMigDeviceHandleByIndex(Device handle, unsigned index, Device *mig) {
    BEGIN_BOARD(handle, "%u", index);
    if (config->mig > 0) END(config->mig);
    if (config->mig || index >= (unsigned)config->mig_devices.count) END(NOT_FOUND);
    *mig = &board->mig[index];
    END(SUCCESS);
}

Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device handle, Device *parent) {
    BEGIN(ANY_DEVICE, handle, "");
    MigHandle *mig = mig_of(handle);
    if (!mig) END(INVALID_ARGUMENT);
    *parent = mig->board;
    END(SUCCESS);
}

Return nvmlDeviceGetGpuInstanceId(Device handle, unsigned *id) {
    BEGIN(ANY_DEVICE, handle, "");
    MigHandle *mig = mig_of(handle);
    if (!mig) END(NOT_SUPPORTED);
    *id = mig_device(mig)->gpu_instance;
    END(SUCCESS);
}

Return nvmlDeviceGetComputeInstanceId(Device handle, unsigned *id) {
    BEGIN(ANY_DEVICE, handle, "");
    MigHandle *mig = mig_of(handle);
    if (!mig) END(NOT_SUPPORTED);
    *id = mig_device(mig)->compute_instance;
    END(SUCCESS);
}

/* ---- events ---- */

#define XID_EVENT 0x8ULL

typedef struct { bool registered[MAX_BOARDS]; int64_t seen[MAX_BOARDS]; } EventSet;
typedef struct { Device device; u64 type, data; unsigned gpu_instance, compute_instance; } EventData;

Return nvmlEventSetCreate(EventSet **set) {
    BEGIN(NO_DEVICE, NULL, "");
    *set = calloc(1, sizeof **set);
    END(*set ? SUCCESS : UNKNOWN);
}

Return nvmlEventSetFree(EventSet *set) {
    BEGIN(NO_DEVICE, NULL, "");
    free(set);
    END(SUCCESS);
}

Return nvmlDeviceGetSupportedEventTypes(Device handle, u64 *types) {
    BEGIN_BOARD(handle, "");
    *types = XID_EVENT;
    END(SUCCESS);
}

Return nvmlDeviceRegisterEvents(Device handle, u64 types, EventSet *set) {
    BEGIN_BOARD(handle, "%llu", types);
    if (!set) END(INVALID_ARGUMENT);
    if (types & ~XID_EVENT) END(NOT_SUPPORTED);
    set->registered[board->index] = types != 0;
    set->seen[board->index] = since_start();
    END(SUCCESS);
}

/* The next Xid of a board after those that the set has handed out. */
static bool next_xid(EventSet *set, EventData *data) {
    for (int i = 0; i < scenario.count; i++) {
        if (!set->registered[i] || !board_enter(&boards[i])) continue;
        const Timeline *xid = &boards[i].config.xid;
        const Point *found = NULL;
        for (int j = 0; j < xid->count && !found; j++)
            if (xid->points[j].t > set->seen[i] && xid->points[j].t <= since_start()) found = &xid->points[j];
        if (found) {
            set->seen[i] = found->t;
            *data = (EventData){&boards[i], XID_EVENT, (u64)found->value, ~0u, ~0u};
        }
        board_leave(&boards[i]);
        if (found) return true;
    }
    return false;
}

Return nvmlEventSetWait_v2(EventSet *set, EventData *data, unsigned timeout_ms) {
    BEGIN(NO_DEVICE, NULL, "%u", timeout_ms);
    if (!set || !data) END(INVALID_ARGUMENT);
    int64_t until = monotonic_ns() + timeout_ms * 1000000LL;
    while (!next_xid(set, data)) {
        if (monotonic_ns() >= until) END(TIMEOUT);
        if (!rest(&call, 2)) END(UNKNOWN);
    }
    END(SUCCESS);
}
Return nvmlEventSetWait(EventSet *set, EventData *data, unsigned timeout_ms) ALIAS(nvmlEventSetWait_v2);

/* ---- GPM ---- */

typedef struct { bool taken; const Board *board; int64_t at; double load_s; } GpmSample;
typedef struct { unsigned id; Return result; double value; const char *short_name, *long_name, *unit; } GpmMetric;
typedef struct { unsigned version, number; GpmSample *first, *second; GpmMetric metrics[]; } GpmMetrics;
typedef struct { unsigned version, supported; } GpmSupport;

Return nvmlGpmQueryDeviceSupport(Device handle, GpmSupport *support) {
    BEGIN(ANY_DEVICE, handle, "");
    support->supported = call.board->config.gpm;
    END(SUCCESS);
}

Return nvmlGpmSampleAlloc(GpmSample **sample) {
    BEGIN(NO_DEVICE, NULL, "");
    *sample = calloc(1, sizeof **sample);
    END(*sample ? SUCCESS : UNKNOWN);
}

Return nvmlGpmSampleFree(GpmSample *sample) {
    BEGIN(NO_DEVICE, NULL, "");
    free(sample);
    END(SUCCESS);
}

Return nvmlGpmSampleGet(Device handle, GpmSample *sample) {
    BEGIN_BOARD(handle, "");
    if (!config->gpm) END(NOT_SUPPORTED);
    if (!sample) END(INVALID_ARGUMENT);
    int64_t now = since_start();
    *sample = (GpmSample){true, board, now, load_integral(board, now)};
    END(SUCCESS);
}

/* A metric's share of its maximum is its figure at full load times the mean load between the samples. */
Return nvmlGpmMetricsGet(GpmMetrics *get) {
    BEGIN(NO_DEVICE, NULL, "%u", get->number);
    const GpmSample *first = get->first, *second = get->second;
    if (get->version != 1) END(VERSION_MISMATCH);
    if (!first || !second || !first->taken || first->board != second->board || second->at <= first->at)
        END(INVALID_ARGUMENT);
    const Gpm *known = &first->board->config.gpm_metrics;
    double load = (second->load_s - first->load_s) * NS_PER_S / (double)(second->at - first->at);
    for (unsigned i = 0; i < get->number; i++) {
        GpmMetric *metric = &get->metrics[i];
        metric->result = NOT_SUPPORTED;
        metric->value = NAN;
        metric->short_name = metric->long_name = "";
        metric->unit = "%";
        for (int j = 0; j < known->count; j++)
            if (known->id[j] == metric->id) metric->value = known->percent[j] * load, metric->result = SUCCESS;
    }
    END(SUCCESS);
}
