/* From the scenario to a call: handles, rules, latency, the log; and how the library is opened and closed. */
#include "calls.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

Scenario scenario;
Board boards[MAX_BOARDS];
static int users;
static int log_fd = -1;
static pid_t opened_by;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- handles ---- */

Board *board_of(Device handle) {
    Board *board = handle;
    if (board < boards || board >= boards + scenario.count) return NULL;
    return ((char *)handle - (char *)boards) % (ptrdiff_t)sizeof *boards ? NULL : board;
}

MigHandle *mig_of(Device handle) {
    for (int i = 0; i < scenario.count; i++)
        for (int j = 0; j < boards[i].config.mig_devices.count; j++)
            if (handle == &boards[i].mig[j] && boards[i].config.mig == SUCCESS) return handle;
    return NULL;
}

const MigDevice *mig_device(const MigHandle *mig) { return &mig->board->config.mig_devices.devices[mig->number]; }

/* ---- a call: checks, latency, the log ---- */

static void log_call(const Call *call, Return result) {
    char line[320], index[16] = "-";
    if (log_fd < 0) return;
    if (call->board) snprintf(index, sizeof index, "%u", call->board->index);
    int length = snprintf(line, sizeof line, "%lld %d %s %s %s %s\n", (long long)call->at, (int)getpid(),
                          call->function, index, *call->argument ? call->argument : "-", code_name(result));
    if (write(log_fd, line, (size_t)length) != length) fprintf(stderr, "fake nvml: cannot write calls.log.\n");
}

/* nvmlDeviceGetCount_v2 is nvmlDeviceGetCount to a rule. */
static bool same_function(const char *rule, const char *function) {
    size_t a = strlen(rule), b = strlen(function);
    if (a > 3 && !strncmp(rule + a - 3, "_v", 2)) a -= 3;
    if (b > 3 && !strncmp(function + b - 3, "_v", 2)) b -= 3;
    return a == b && !strncmp(rule, function, a);
}

/* How often this process has called the function on the board. */
static long counted(const char *function, const Board *board) {
    static struct { const char *function; const Board *board; long calls; } counts[1024];
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i].function && (counts[i].board != board || strcmp(counts[i].function, function))) continue;
        counts[i].function = function;
        counts[i].board = board;
        return ++counts[i].calls;
    }
    return 0;
}

static const Rule *rule_in(const Rules *rules, const char *function, bool error, long calls, bool device) {
    int64_t now = since_start();
    for (int i = rules->count - 1; i >= 0; i--) {
        const Rule *rule = &rules->rules[i];
        bool fits = same_function(rule->function, function) || (device && !strcmp(rule->function, "*"));
        if (!fits || (rule->code != SUCCESS) != error) continue;
        if (calls >= rule->first && (rule->last < 0 || calls <= rule->last) && now >= rule->after && now < rule->until)
            return rule;
    }
    return NULL;
}

static const Rule *rule_for(const Board *board, const char *function, bool error, long calls) {
    const Rule *rule = board ? rule_in(&board->config.rules, function, error, calls, true) : NULL;
    return rule ? rule : rule_in(&scenario.rules, function, error, calls, board != NULL);
}

static void pause_ms(double ms) {
    struct timespec rest = {(time_t)(ms / 1e3), (long)(fmod(ms, 1e3) * 1e6)};
    while (nanosleep(&rest, &rest) && errno == EINTR) continue;
}

/* A fork shares its parent's lock on the board files: it opens its own. */
static bool reopened(void) {
    if (opened_by == getpid()) return true;
    bool open = true;
    for (int i = 0; i < scenario.count; i++) {
        board_close(&boards[i]);
        open = board_open(&boards[i]) && open;
    }
    opened_by = getpid();
    return open;
}

Return finish(Call *call, Return result) {
    if (call->entered) board_leave(call->board);
    log_call(call, result);
    pthread_mutex_unlock(&mutex);
    return result;
}

bool rest(Call *call, double ms) {
    if (call->entered) board_leave(call->board);
    call->entered = false;
    pthread_mutex_unlock(&mutex);
    pause_ms(ms);
    pthread_mutex_lock(&mutex);
    if (!users) return false;
    call->entered = call->board && board_enter(call->board);
    return call->entered || !call->board;
}

Return field_rule(const Board *board, const char *name) {
    const Rule *rule = rule_in(&board->config.rules, name, true, 1, false);
    if (!rule) rule = rule_in(&scenario.rules, name, true, 1, false);
    return rule ? rule->code : SUCCESS;
}

Return begin(Call *call, const char *function, Takes takes, Device handle, const char *format, ...) {
    *call = (Call){.function = function, .at = monotonic_ns()};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->argument, sizeof call->argument, format, arguments);
    va_end(arguments);
    for (char *c = call->argument; *c; c++)
        if (*c <= ' ') *c = '_'; /* a line of the log has six words */
    pthread_mutex_lock(&mutex);
    if (!users) return finish(call, UNINITIALIZED);
    if (!reopened()) return finish(call, UNKNOWN);
    MigHandle *mig = takes == NO_DEVICE ? NULL : mig_of(handle);
    if (takes != NO_DEVICE && !(call->board = mig ? mig->board : board_of(handle))) return finish(call, INVALID_ARGUMENT);
    /* What was set for the board also rules this very call. */
    if (call->board && !board_enter(call->board)) return finish(call, UNKNOWN);
    call->entered = call->board != NULL;
    long calls = counted(function, call->board);
    const Rule *slow = rule_for(call->board, function, false, calls);
    if (slow && slow->latency_ms > 0 && !rest(call, slow->latency_ms)) return finish(call, UNKNOWN);
    const Rule *failing = rule_for(call->board, function, true, calls);
    if (failing) return finish(call, failing->code);
    return mig && takes == WHOLE_BOARD ? finish(call, NOT_SUPPORTED) : SUCCESS;
}

Return copied(char *to, unsigned size, const char *text) {
    if (!to) return INVALID_ARGUMENT;
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

Return told(unsigned *to, double value) {
    if (!to) return INVALID_ARGUMENT;
    *to = (unsigned)llround(fmax(value, 0));
    return SUCCESS;
}

double or_limit(const Config *config, double watts) { return watts == UNSET ? config->limit_w : watts; }

/* ---- the library ---- */

static void close_all(void) {
    for (int i = 0; i < scenario.count; i++) board_close(&boards[i]);
    if (log_fd >= 0) close(log_fd);
    log_fd = -1;
}

static bool open_all(void) {
    const char *path = getenv("FAKE_NVML_SCENARIO"), *state = getenv("FAKE_NVML_STATE");
    char name[4096];
    if (!path || !state || strlen(state) >= 3500) {
        fprintf(stderr, "fake nvml: set FAKE_NVML_SCENARIO to a scenario file and FAKE_NVML_STATE to a folder.\n");
        return false;
    }
    strcpy(state_folder, state);
    if (!scenario_read(path, &scenario)) return false;
    state_path(name, sizeof name, "calls.log", -1);
    log_fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    bool open = log_fd >= 0 && start_stamp();
    for (int i = 0; i < scenario.count; i++) {
        Board *board = &boards[i];
        *board = (Board){.index = (unsigned)i, .base = scenario.boards[i], .config = scenario.boards[i], .fd = -1};
        for (int j = 0; j < MAX_MIG; j++) board->mig[j] = (MigHandle){board, j};
        open = open && board_open(board);
    }
    if (!open) {
        fprintf(stderr, "fake nvml: cannot use the state folder %s: %s.\n", state, strerror(errno));
        close_all();
    }
    opened_by = getpid();
    return open;
}

/* A child must be able to call, whatever thread of its parent was in the library. */
static void unlock_in_child(void) { pthread_mutex_init(&mutex, NULL); }

Return nvmlInitWithFlags(unsigned flags) {
    static bool prepared;
    Call call = {.function = "nvmlInit", .at = monotonic_ns()};
    snprintf(call.argument, sizeof call.argument, "%u", flags);
    pthread_mutex_lock(&mutex);
    if (!prepared) prepared = !pthread_atfork(NULL, NULL, unlock_in_child);
    if (!users && !open_all()) END(UNKNOWN);
    const Rule *failing = rule_for(NULL, call.function, true, counted(call.function, NULL));
    if (!failing) users++;
    Return result = finish(&call, failing ? failing->code : SUCCESS);
    if (!users) close_all();
    return result;
}

Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
Return nvmlInit(void) { return nvmlInitWithFlags(0); }

Return nvmlShutdown(void) {
    BEGIN(NO_DEVICE, NULL, "");
    Return result = finish(&call, SUCCESS);
    if (!--users) close_all();
    return result;
}
