/* The functions of NVML, answered from a scenario. Layouts are those of nvml.h as nvidia-ml-py declares them.
 *
 * A function that is not here is unknown to this driver, as one newer than a real driver would be. */
#include "calls.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *nvmlErrorString(Return code) { return code_name(code); }

Return nvmlSystemGetDriverVersion(char *version, unsigned length) {
    BEGIN(NO_DEVICE, NULL, "");
    END(copied(version, length, scenario.driver));
}

Return nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    BEGIN(NO_DEVICE, NULL, "");
    END(copied(version, length, scenario.nvml));
}

Return nvmlSystemGetCudaDriverVersion_v2(int *version) {
    BEGIN(NO_DEVICE, NULL, "");
    *version = (int)scenario.cuda;
    END(SUCCESS);
}
Return nvmlSystemGetCudaDriverVersion(int *version) ALIAS(nvmlSystemGetCudaDriverVersion_v2);

Return nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    BEGIN(NO_DEVICE, NULL, "%u", pid);
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    if (!read_text(path, text, sizeof text, NULL)) END(NOT_FOUND);
    text[strcspn(text, "\n")] = 0;
    END(copied(name, length, text));
}

/* ---- which boards there are ---- */

Return nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN(NO_DEVICE, NULL, "");
    *count = (unsigned)scenario.count;
    END(SUCCESS);
}
Return nvmlDeviceGetCount(unsigned *count) ALIAS(nvmlDeviceGetCount_v2);

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    BEGIN(NO_DEVICE, NULL, "%u", index);
    if (index >= (unsigned)scenario.count) END(INVALID_ARGUMENT);
    *device = &boards[index];
    END(SUCCESS);
}
Return nvmlDeviceGetHandleByIndex(unsigned index, Device *device) ALIAS(nvmlDeviceGetHandleByIndex_v2);

Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    BEGIN(NO_DEVICE, NULL, "%s", uuid);
    for (int i = 0; i < scenario.count; i++) {
        const MigDevices *migs = &boards[i].config.mig_devices;
        if (!strcmp(boards[i].config.uuid, uuid)) *device = &boards[i];
        else {
            int j = 0;
            while (j < migs->count && strcmp(migs->devices[j].uuid, uuid)) j++;
            if (j == migs->count || boards[i].config.mig != SUCCESS) continue;
            *device = &boards[i].mig[j];
        }
        END(SUCCESS);
    }
    END(NOT_FOUND);
}

Return nvmlDeviceGetHandleBySerial(const char *serial, Device *device) {
    BEGIN(NO_DEVICE, NULL, "%s", serial);
    for (int i = 0; i < scenario.count; i++)
        if (!strcmp(boards[i].config.serial, serial)) {
            *device = &boards[i];
            END(SUCCESS);
        }
    END(NOT_FOUND);
}

typedef struct { unsigned domain, bus, device, function; } Pci;

static bool pci_of(const char *text, Pci *pci) {
    *pci = (Pci){0, 0, 0, 0};
    if (sscanf(text, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &pci->function) >= 3) return true;
    pci->domain = 0;
    return sscanf(text, "%x:%x.%x", &pci->bus, &pci->device, &pci->function) >= 2;
}

Return nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device *device) {
    BEGIN(NO_DEVICE, NULL, "%s", id);
    Pci asked, own;
    if (!pci_of(id, &asked)) END(INVALID_ARGUMENT);
    for (int i = 0; i < scenario.count; i++)
        if (pci_of(boards[i].config.pci, &own) && !memcmp(&asked, &own, sizeof own)) {
            *device = &boards[i];
            END(SUCCESS);
        }
    END(NOT_FOUND);
}
Return nvmlDeviceGetHandleByPciBusId(const char *id, Device *device) ALIAS(nvmlDeviceGetHandleByPciBusId_v2);

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} PciInfo;

Return nvmlDeviceGetPciInfo_v3(Device handle, PciInfo *info) {
    BEGIN_BOARD(handle, "");
    Pci pci;
    if (!pci_of(config->pci, &pci)) END(UNKNOWN);
    *info = (PciInfo){.domain = pci.domain, .bus = pci.bus, .device = pci.device, .device_id = 0x10de};
    snprintf(info->legacy, sizeof info->legacy, "%04X:%02X:%02X.%X", pci.domain & 0xffff, pci.bus & 0xff,
             pci.device & 0xff, pci.function & 0xf);
    snprintf(info->id, sizeof info->id, "%08X:%02X:%02X.%X", pci.domain, pci.bus, pci.device, pci.function);
    END(SUCCESS);
}

Return nvmlDeviceGetIndex(Device handle, unsigned *index) {
    BEGIN(ANY_DEVICE, handle, "");
    MigHandle *mig = mig_of(handle);
    *index = mig ? (unsigned)mig->number : call.board->index;
    END(SUCCESS);
}

Return nvmlDeviceGetMinorNumber(Device handle, unsigned *minor) {
    BEGIN_BOARD(handle, "");
    END(told(minor, board->index));
}

Return nvmlDeviceGetName(Device handle, char *name, unsigned length) {
    BEGIN(ANY_DEVICE, handle, "");
    MigHandle *mig = mig_of(handle);
    char text[192];
    snprintf(text, sizeof text, mig ? "%s MIG %.0fgb" : "%s", call.board->config.name,
             mig ? mig_device(mig)->mib / 1024 : 0);
    END(copied(name, length, text));
}

Return nvmlDeviceGetUUID(Device handle, char *uuid, unsigned length) {
    BEGIN(ANY_DEVICE, handle, "");
    MigHandle *mig = mig_of(handle);
    END(copied(uuid, length, mig ? mig_device(mig)->uuid : call.board->config.uuid));
}

Return nvmlDeviceGetSerial(Device handle, char *serial, unsigned length) {
    BEGIN_BOARD(handle, "");
    END(copied(serial, length, config->serial));
}

Return nvmlDeviceGetArchitecture(Device handle, unsigned *architecture) {
    static const char *const NAMES[] = {"", "", "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada",
                                        "hopper", "blackwell"};
    BEGIN_BOARD(handle, "");
    *architecture = 0xffffffff;
    for (unsigned i = 2; i < sizeof NAMES / sizeof *NAMES; i++)
        if (!strcmp(NAMES[i], config->architecture)) *architecture = i;
    END(SUCCESS);
}

Return nvmlDeviceGetCudaComputeCapability(Device handle, int *major, int *minor) {
    BEGIN_BOARD(handle, "");
    END(sscanf(config->compute_capability, "%d.%d", major, minor) == 2 ? SUCCESS : UNKNOWN);
}

/* ---- memory, processes ---- */

static double used_mib(const Config *config) {
    double used = 0;
    for (int i = 0; i < config->processes.count; i++) used += fmax(config->processes.list[i].mib, 0);
    return config->memory_used_mib == UNSET ? used : config->memory_used_mib;
}

static const double MIB = 1024 * 1024;

typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } MemoryV2;

static MemoryV2 memory_of(const Call *call, Device handle) {
    const Config *config = &call->board->config;
    const MigHandle *mig = mig_of(handle);
    double total = mig ? mig_device(mig)->mib : config->memory_mib, used = mig ? 0 : used_mib(config);
    double reserved = mig ? 0 : config->memory_reserved_mib, left = fmax(total - used - reserved, 0);
    return (MemoryV2){0, (u64)(total * MIB), (u64)(reserved * MIB), (u64)(left * MIB), (u64)(used * MIB)};
}

/* The first version counts what the driver reserves as used. */
Return nvmlDeviceGetMemoryInfo(Device handle, Memory *memory) {
    BEGIN(ANY_DEVICE, handle, "");
    MemoryV2 all = memory_of(&call, handle);
    *memory = (Memory){all.total, all.free, all.used + all.reserved};
    END(SUCCESS);
}

Return nvmlDeviceGetMemoryInfo_v2(Device handle, MemoryV2 *memory) {
    BEGIN(ANY_DEVICE, handle, "");
    unsigned version = memory->version;
    if (version != (sizeof *memory | 2u << 24)) END(VERSION_MISMATCH);
    *memory = memory_of(&call, handle);
    memory->version = version;
    END(SUCCESS);
}

typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } ProcessInfo;

static Return list_processes(const Processes *from, unsigned *count, ProcessInfo *to) {
    unsigned room = *count;
    *count = (unsigned)from->count;
    if (!from->count) return SUCCESS;
    if (!to || room < *count) return INSUFFICIENT_SIZE;
    for (int i = 0; i < from->count; i++) {
        const Process *process = &from->list[i];
        unsigned pid = process->pid ? (unsigned)process->pid : (unsigned)getpid();
        to[i] = (ProcessInfo){pid, process->mib < 0 ? ~0ULL : (u64)(process->mib * MIB), ~0u, ~0u};
    }
    return SUCCESS;
}

Return nvmlDeviceGetComputeRunningProcesses_v3(Device handle, unsigned *count, ProcessInfo *list) {
    BEGIN(ANY_DEVICE, handle, "");
    END(list_processes(&call.board->config.processes, count, list));
}
Return nvmlDeviceGetComputeRunningProcesses_v2(Device h, unsigned *count, ProcessInfo *list)
    ALIAS(nvmlDeviceGetComputeRunningProcesses_v3);

Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device handle, unsigned *count, ProcessInfo *list) {
    BEGIN(ANY_DEVICE, handle, "");
    END(list_processes(&call.board->config.graphics_processes, count, list));
}
Return nvmlDeviceGetGraphicsRunningProcesses_v2(Device h, unsigned *count, ProcessInfo *list)
    ALIAS(nvmlDeviceGetGraphicsRunningProcesses_v3);

Return nvmlDeviceGetMPSComputeRunningProcesses_v3(Device handle, unsigned *count, ProcessInfo *list) {
    static const Processes NONE;
    BEGIN(ANY_DEVICE, handle, "");
    END(list_processes(&NONE, count, list));
}

/* ---- power and energy ---- */

Return nvmlDeviceGetPowerUsage(Device handle, unsigned *milliwatts) {
    BEGIN_BOARD(handle, "");
    if (config->power_usage) END(config->power_usage);
    END(told(milliwatts, 1e3 * mean_watts(board, since_start(), config->usage_window_ms)));
}

Return nvmlDeviceGetTotalEnergyConsumption(Device handle, u64 *millijoules) {
    BEGIN_BOARD(handle, "");
    if (config->energy) END(config->energy);
    *millijoules = (u64)llround(1e3 * counter_joules(board));
    END(SUCCESS);
}

Return nvmlDeviceGetEnforcedPowerLimit(Device handle, unsigned *milliwatts) {
    BEGIN_BOARD(handle, "");
    END(told(milliwatts, 1e3 * config->limit_w));
}

Return nvmlDeviceGetPowerManagementLimit(Device handle, unsigned *milliwatts) {
    BEGIN_BOARD(handle, "");
    END(told(milliwatts, 1e3 * or_limit(config, config->limit_management_w)));
}

Return nvmlDeviceGetPowerManagementDefaultLimit(Device handle, unsigned *milliwatts) {
    BEGIN_BOARD(handle, "");
    END(told(milliwatts, 1e3 * or_limit(config, config->limit_default_w)));
}

Return nvmlDeviceGetPowerManagementLimitConstraints(Device handle, unsigned *least, unsigned *most) {
    BEGIN_BOARD(handle, "");
    told(least, 1e3 * or_limit(config, config->limit_min_w));
    END(told(most, 1e3 * or_limit(config, config->limit_max_w)));
}

/* ---- clocks ---- */

enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO };

static double maximum(const Clocks *clocks) { return clocks->count ? clocks->mhz[0] : 0; }

static Return clock_now(const Board *board, unsigned type, unsigned *mhz) {
    Operation now = operation_at(board, since_start());
    if (type > CLOCK_VIDEO) return INVALID_ARGUMENT;
    return told(mhz, type == CLOCK_MEMORY ? now.memory_mhz : now.sm_mhz);
}

static Return clock_most(const Config *config, unsigned type, unsigned *mhz) {
    if (type > CLOCK_VIDEO) return INVALID_ARGUMENT;
    return told(mhz, maximum(type == CLOCK_MEMORY ? &config->memory_clocks : &config->sm_clocks));
}

Return nvmlDeviceGetClockInfo(Device handle, unsigned type, unsigned *mhz) {
    BEGIN_BOARD(handle, "%u", type);
    END(clock_now(board, type, mhz));
}

Return nvmlDeviceGetMaxClockInfo(Device handle, unsigned type, unsigned *mhz) {
    BEGIN_BOARD(handle, "%u", type);
    END(clock_most(config, type, mhz));
}

Return nvmlDeviceGetClock(Device handle, unsigned type, unsigned id, unsigned *mhz) {
    BEGIN_BOARD(handle, "%u,%u", type, id);
    if (id > 3) END(INVALID_ARGUMENT);
    END(id ? clock_most(config, type, mhz) : clock_now(board, type, mhz));
}

Return nvmlDeviceGetApplicationsClock(Device handle, unsigned type, unsigned *mhz) {
    BEGIN_BOARD(handle, "%u", type);
    END(clock_most(config, type, mhz));
}

Return nvmlDeviceGetDefaultApplicationsClock(Device handle, unsigned type, unsigned *mhz) {
    BEGIN_BOARD(handle, "%u", type);
    END(clock_most(config, type, mhz));
}

Return nvmlDeviceGetMaxCustomerBoostClock(Device handle, unsigned type, unsigned *mhz) {
    BEGIN_BOARD(handle, "%u", type);
    END(clock_most(config, type, mhz));
}

static Return list_clocks(const Clocks *from, unsigned *count, unsigned *to) {
    unsigned room = *count;
    *count = (unsigned)from->count;
    if (!from->count) return NOT_SUPPORTED;
    if (!to || room < *count) return INSUFFICIENT_SIZE;
    memcpy(to, from->mhz, *count * sizeof *to);
    return SUCCESS;
}

Return nvmlDeviceGetSupportedMemoryClocks(Device handle, unsigned *count, unsigned *mhz) {
    BEGIN_BOARD(handle, "");
    END(list_clocks(&config->memory_clocks, count, mhz));
}

Return nvmlDeviceGetSupportedGraphicsClocks(Device handle, unsigned memory, unsigned *count, unsigned *mhz) {
    BEGIN_BOARD(handle, "%u", memory);
    for (int i = 0; i < config->memory_clocks.count; i++)
        if (config->memory_clocks.mhz[i] == memory) END(list_clocks(&config->sm_clocks, count, mhz));
    END(config->memory_clocks.count ? NOT_FOUND : NOT_SUPPORTED);
}

/* A lock outlives whoever set it: it is a file, which the other processes see at their next call. */
static Return lock_clocks(Board *board, const char *name, unsigned low, unsigned high) {
    char text[64];
    if (!scenario.permitted) return NO_PERMISSION;
    if (low > high || !high) return INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%u %u\n", low, high);
    if (!write_state(name, (int)board->index, text)) return UNKNOWN;
    observe(board);
    return SUCCESS;
}

static Return unlock_clocks(Board *board, const char *name) {
    if (!scenario.permitted) return NO_PERMISSION;
    if (!write_state(name, (int)board->index, NULL)) return UNKNOWN;
    observe(board);
    return SUCCESS;
}

Return nvmlDeviceSetGpuLockedClocks(Device handle, unsigned low, unsigned high) {
    BEGIN_BOARD(handle, "%u-%u", low, high);
    END(lock_clocks(board, "gpu_lock", low, high));
}

Return nvmlDeviceResetGpuLockedClocks(Device handle) {
    BEGIN_BOARD(handle, "");
    END(unlock_clocks(board, "gpu_lock"));
}

Return nvmlDeviceSetMemoryLockedClocks(Device handle, unsigned low, unsigned high) {
    BEGIN_BOARD(handle, "%u-%u", low, high);
    END(lock_clocks(board, "memory_lock", low, high));
}

Return nvmlDeviceResetMemoryLockedClocks(Device handle) {
    BEGIN_BOARD(handle, "");
    END(unlock_clocks(board, "memory_lock"));
}

Return nvmlDeviceGetCurrentClocksEventReasons(Device handle, u64 *reasons) {
    BEGIN_BOARD(handle, "");
    *reasons = operation_at(board, since_start()).reasons;
    END(SUCCESS);
}
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device h, u64 *reasons) ALIAS(nvmlDeviceGetCurrentClocksEventReasons);

Return nvmlDeviceGetSupportedClocksEventReasons(Device handle, u64 *reasons) {
    BEGIN_BOARD(handle, "");
    *reasons = 0x1ff;
    END(SUCCESS);
}
Return nvmlDeviceGetSupportedClocksThrottleReasons(Device h, u64 *reasons)
    ALIAS(nvmlDeviceGetSupportedClocksEventReasons);

typedef struct { u64 reference_us, violated_ns; } Violation;

Return nvmlDeviceGetViolationStatus(Device handle, unsigned policy, Violation *violation) {
    BEGIN_BOARD(handle, "%u", policy);
    const Shared *seen = board->shared;
    double seconds = policy == 0 ? seen->capped_s : policy == 1 ? seen->thermal_s : policy == 2 ? seen->sync_s : 0;
    if (policy > 11 || (policy > 5 && policy < 10)) END(INVALID_ARGUMENT);
    *violation = (Violation){(u64)realtime_ns() / 1000, (u64)(seconds * NS_PER_S)};
    END(SUCCESS);
}

Return nvmlDeviceGetPerformanceState(Device handle, unsigned *state) {
    BEGIN_BOARD(handle, "");
    END(told(state, operation_at(board, since_start()).load > 0 ? 0 : config->pstate_idle));
}
Return nvmlDeviceGetPowerState(Device handle, unsigned *state) ALIAS(nvmlDeviceGetPerformanceState);

Return nvmlDeviceGetPersistenceMode(Device handle, unsigned *state) {
    BEGIN_BOARD(handle, "");
    END(told(state, config->persistence));
}

/* ---- utilisation and temperature ---- */

typedef struct { unsigned gpu, memory; } Utilization;

static double gpm_percent(const Config *config, unsigned id) {
    for (int i = 0; i < config->gpm_metrics.count; i++)
        if (config->gpm_metrics.id[i] == id) return config->gpm_metrics.percent[i];
    return UNSET;
}

/* Without a timeline, as a board does: the GPU figure says that some kernel ran, not how much of the GPU it used. */
Return nvmlDeviceGetUtilizationRates(Device handle, Utilization *utilization) {
    BEGIN_BOARD(handle, "");
    int64_t now = since_start();
    double load = operation_at(board, now).load, dram = fmax(gpm_percent(config, 10), 0);
    told(&utilization->gpu, value_at(&config->utilization_gpu, now, load > 0 ? 100 : 0));
    END(told(&utilization->memory, value_at(&config->utilization_memory, now, load * dram)));
}

Return nvmlDeviceGetTemperature(Device handle, unsigned sensor, unsigned *degrees) {
    BEGIN_BOARD(handle, "%u", sensor);
    END(sensor ? INVALID_ARGUMENT : told(degrees, temperature_at(board, since_start())));
}

typedef struct { unsigned version, sensor; int degrees; } Temperature;

Return nvmlDeviceGetTemperatureV(Device handle, Temperature *temperature) {
    BEGIN_BOARD(handle, "%u", temperature->sensor);
    if (temperature->version != (sizeof *temperature | 1u << 24)) END(VERSION_MISMATCH);
    if (temperature->sensor) END(INVALID_ARGUMENT);
    temperature->degrees = (int)lround(temperature_at(board, since_start()));
    END(SUCCESS);
}

Return nvmlDeviceGetTemperatureThreshold(Device handle, unsigned which, unsigned *degrees) {
    BEGIN_BOARD(handle, "%u", which);
    double value = which == 0 ? config->shutdown_c : which == 1 ? config->slowdown_c : which == 3 ? config->gpu_max_c : 0;
    END(value > 0 ? told(degrees, value) : NOT_SUPPORTED);
}

/* ---- memory errors ---- */

static u64 ecc_errors(const Config *config, unsigned error, unsigned counter) {
    const Timeline *single = counter ? &config->corrected_aggregate : &config->corrected_volatile;
    const Timeline *several = counter ? &config->uncorrected_aggregate : &config->uncorrected_volatile;
    return (u64)value_at(error ? several : single, since_start(), 0);
}

Return nvmlDeviceGetEccMode(Device handle, unsigned *current, unsigned *pending) {
    BEGIN_BOARD(handle, "");
    if (config->ecc > 0) END(config->ecc);
    *current = *pending = config->ecc == SUCCESS;
    END(SUCCESS);
}

Return nvmlDeviceGetTotalEccErrors(Device handle, unsigned error, unsigned counter, u64 *count) {
    BEGIN_BOARD(handle, "%u,%u", error, counter);
    if (error > 1 || counter > 1) END(INVALID_ARGUMENT);
    if (config->ecc) END(config->ecc > 0 ? config->ecc : NOT_SUPPORTED);
    *count = ecc_errors(config, error, counter);
    END(SUCCESS);
}

Return nvmlDeviceGetMemoryErrorCounter(Device handle, unsigned error, unsigned counter, unsigned where, u64 *count) {
    BEGIN_BOARD(handle, "%u,%u,%u", error, counter, where);
    if (error > 1 || counter > 1) END(INVALID_ARGUMENT);
    if (config->ecc) END(config->ecc > 0 ? config->ecc : NOT_SUPPORTED);
    *count = where == 2 ? ecc_errors(config, error, counter) : 0; /* all of them are the device memory's */
    END(SUCCESS);
}

Return nvmlDeviceGetRemappedRows(Device handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                 unsigned *failed) {
    BEGIN_BOARD(handle, "");
    told(corrected, config->remapped_corrected);
    told(uncorrected, config->remapped_uncorrected);
    told(pending, config->remap_pending);
    END(told(failed, config->remap_failed));
}

Return nvmlDeviceGetRetiredPages(Device handle, unsigned cause, unsigned *count, u64 *addresses) {
    BEGIN_BOARD(handle, "%u", cause);
    unsigned room = *count;
    *count = (unsigned)(cause ? config->retired_double : config->retired_single);
    if (*count && (!addresses || room < *count)) END(INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < *count; i++) addresses[i] = 0x1000ULL * (i + 1);
    END(SUCCESS);
}

Return nvmlDeviceGetRetiredPagesPendingStatus(Device handle, unsigned *pending) {
    BEGIN_BOARD(handle, "");
    END(told(pending, config->retired_pending));
}
