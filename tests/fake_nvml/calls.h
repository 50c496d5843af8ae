/* What every function of the library begins and ends with. */
#ifndef FAKE_NVML_CALLS_H
#define FAKE_NVML_CALLS_H

#include "fake.h"

typedef int Return;
typedef unsigned long long u64;
typedef void *Device; /* a Board or a MigHandle */

typedef enum { NO_DEVICE, WHOLE_BOARD, ANY_DEVICE } Takes;

typedef struct {
    const char *function;
    char argument[96];
    int64_t at;
    Board *board; /* NULL: the call is about no board */
    bool entered;
} Call;

#pragma GCC visibility push(hidden)

extern Scenario scenario;
extern Board boards[MAX_BOARDS];

Board *board_of(Device handle);   /* NULL: no board's handle */
MigHandle *mig_of(Device handle); /* NULL: no MIG device's handle */
const MigDevice *mig_device(const MigHandle *mig);

/* Starts a call; what is not SUCCESS has been logged and is to be returned. Otherwise the caller ends with finish(). */
Return begin(Call *call, const char *function, Takes takes, Device handle, const char *format, ...);
Return finish(Call *call, Return result);
bool rest(Call *call, double ms);                        /* lets others call meanwhile; false: finish with UNKNOWN */
Return field_rule(const Board *board, const char *name); /* the code that the scenario has for a field, or SUCCESS */

Return told(unsigned *to, double value);
Return copied(char *to, unsigned size, const char *text);
double or_limit(const Config *config, double watts);

#pragma GCC visibility pop

#define BEGIN(takes, handle, ...) \
    Call call; \
    Return begun = begin(&call, __func__, takes, handle, __VA_ARGS__); \
    if (begun) return begun

/* On a board of its own: `board`, and its settings as `config`. */
#define BEGIN_BOARD(handle, ...) \
    BEGIN(WHOLE_BOARD, handle, __VA_ARGS__); \
    Board *board = call.board; \
    const Config *config = &board->config; \
    (void)config

#define END(result) return finish(&call, result)

#define ALIAS(of) __attribute__((alias(#of)))

#endif
