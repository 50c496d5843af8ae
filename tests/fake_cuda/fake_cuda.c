/* A context is the line "processes = PID:300" of a fake board, so that the driver library lists who holds it.
   FAKE_CUDA_INIT is what cuInit returns, FAKE_CUDA_GPUS how many GPUs there are. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int cuInit(unsigned flags) {
    (void)flags;
    return number("FAKE_CUDA_INIT", 0);
}

int cuDeviceGetCount(int *count) {
    *count = number("FAKE_CUDA_GPUS", 1);
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    const char *state = getenv("FAKE_NVML_STATE");
    static int held;
    *context = &held;
    if (state) {
        char path[4096];
        snprintf(path, sizeof path, "%s/set.%d", state, device);
        FILE *file = fopen(path, "w");
        if (!file) return 2;
        fprintf(file, "processes = %d:300\n", getpid());
        fclose(file);
    }
    return 0;
}

int cuGetErrorName(int status, const char **name) {
    *name = status == 100 ? "CUDA_ERROR_NO_DEVICE" : NULL;
    return status == 100 ? 0 : 1;
}
