/*
 * A streaming server whose send times are known: the truth that load generators are compared with.
 *
 * It speaks as much of the OpenAI API as load generators need, generates nothing, and sends every token at a time it
 * has planned. For each streamed request it keeps when the request's last byte came and, for every token, the time
 * read immediately before the send() that carried it. One thread on one core of its own spins on the clock while any
 * stream is open: a sleeping thread is woken tens of microseconds late, and that would be in every figure. Sockets
 * never block: what a client does not take is queued, counted ("blocked"), and holds up no other stream.
 *
 * When a request's last byte came is the kernel's receive stamp (SO_TIMESTAMPNS, wall clock, converted to the monotonic
 * clock at each read), so that a server busy with other streams does not lay its own delay on the client.
 *
 *     cc -O2 -o reference_server reference_server.c
 *     ./reference_server --port 8000 --cpu 1 --log truth.jsonl
 *
 * Options (times in microseconds):
 *     --port N         0, the default, takes a free port; the first line of stdout says which: "listening PORT"
 *     --cpu N          run on this core only
 *     --ttft-us N      from a request's last byte to its first token (50000)
 *     --itl-us N       from one token to the next (20000)
 *     --stagger-us N   request n starts (n * N modulo itl) later, so that streams that came together are not due together
 *     --pump RATE      instead of --itl-us: RATE tokens a second over all streams together, evenly interleaved; they
 *                      start when --streams requests are waiting, or when none has come for --gather-us
 *     --streams N      how many requests pump mode waits for (256)
 *     --gather-us N    (2000000)
 *     --log FILE       where the log is written on SIGTERM or SIGINT; GET /dump returns the same
 *
 * The log is JSON lines. The first describes the run: how late tokens were against the plan, how long send() took,
 * how often the kernel took the core away. Each further line is a request: token k was due at due_ns + k * interval_ns
 * and was sent at sent_ns[k]. All times are nanoseconds of CLOCK_MONOTONIC.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_EVENTS 256
#define MAX_BODY (64 << 20)
#define ID_LENGTH 128
/* While tokens are due without a pause, look for new requests after this many sends. */
#define SENDS_PER_POLL 32
/* With this long to the next token there is time for a look at the sockets. */
#define POLL_MARGIN_NS 20000

static const char MODEL[] = "reference";

typedef struct Buffer {
    char *data;
    size_t length, capacity;
} Buffer;

typedef struct Connection Connection;

/* A streamed request; it outlives its connection, because it is the log. */
typedef struct Request {
    Connection *connection; /* NULL once the client has gone */
    char id[ID_LENGTH];
    int chat, token_ids, usage, usage_each, close;
    int tokens, prompt_tokens, sent, blocked;
    int64_t received_ns, read_ns, due_ns, interval_ns;
    int64_t *sent_ns;
} Request;

struct Connection {
    int fd, wants_write, close_after, dead;
    int64_t received_ns; /* of the last bytes read */
    Buffer in, out;
    size_t out_offset;
    Request *streaming;
};

typedef struct Timer {
    int64_t due_ns;
    Request *request;
} Timer;

static struct {
    int port, cpu;
    int64_t ttft_ns, itl_ns, stagger_ns, gather_ns;
    double pump;
    int streams;
    const char *log;
} options = {0, -1, 50000000, 20000000, 0, 2000000000, 0.0, 256, NULL};

static int poller;
static Request **requests;
static size_t request_count, request_capacity;
static Timer *heap;
static size_t heap_length, heap_capacity;
static size_t waiting_from; /* pump mode: requests from here on have not started */
static int64_t last_arrival_ns;
static int32_t *send_took_ns;
static size_t sends, sends_capacity;
static volatile sig_atomic_t stopping;

static void *must(void *memory) {
    if (!memory) {
        fputs("reference_server: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static void reserve(Buffer *buffer, size_t more) {
    if (buffer->length + more + 1 <= buffer->capacity) return;
    while (buffer->length + more + 1 > buffer->capacity) buffer->capacity = buffer->capacity ? buffer->capacity * 2 : 8192;
    buffer->data = must(realloc(buffer->data, buffer->capacity));
}

static void append(Buffer *buffer, const char *data, size_t length) {
    reserve(buffer, length);
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
    buffer->data[buffer->length] = 0;
}

__attribute__((format(printf, 2, 3))) static void print(Buffer *buffer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    reserve(buffer, (size_t)length);
    va_start(arguments, format);
    vsnprintf(buffer->data + buffer->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->length += (size_t)length;
}

/* ---- timers: a binary heap, earliest first ---- */

static void schedule(int64_t due_ns, Request *request) {
    if (heap_length == heap_capacity) {
        heap_capacity = heap_capacity ? heap_capacity * 2 : 4096;
        heap = must(realloc(heap, heap_capacity * sizeof *heap));
    }
    size_t place = heap_length++;
    while (place && heap[(place - 1) / 2].due_ns > due_ns) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = (Timer){due_ns, request};
}

static Request *pop(void) {
    Request *first = heap[0].request;
    Timer last = heap[--heap_length];
    size_t place = 0;
    for (size_t child; (child = 2 * place + 1) < heap_length; place = child) {
        if (child + 1 < heap_length && heap[child + 1].due_ns < heap[child].due_ns) child++;
        if (heap[child].due_ns >= last.due_ns) break;
        heap[place] = heap[child];
    }
    if (heap_length) heap[place] = last;
    return first;
}

/* ---- sockets ---- */

static void watch(Connection *connection, int wants_write) {
    if (connection->wants_write == wants_write) return;
    connection->wants_write = wants_write;
    struct epoll_event event = {EPOLLIN | (wants_write ? EPOLLOUT : 0), {.ptr = connection}};
    epoll_ctl(poller, EPOLL_CTL_MOD, connection->fd, &event);
}

/* Its memory is freed after the events at hand, which may name it again. */
static void hang_up(Connection *connection) {
    if (connection->dead) return;
    connection->dead = 1;
    close(connection->fd);
    if (connection->streaming) connection->streaming->connection = NULL;
    connection->streaming = NULL;
}

static void release(Connection *connection) {
    free(connection->in.data);
    free(connection->out.data);
    free(connection);
}

/* Send now what the socket takes and queue the rest; returns whether something had to be queued. */
static int transmit(Connection *connection, const char *data, size_t length) {
    if (!connection->out.length) {
        ssize_t taken = send(connection->fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (taken == (ssize_t)length) return 0;
        if (taken < 0 && errno != EAGAIN && errno != EINTR) return 0; /* gone: the next read says so */
        if (taken > 0) data += taken, length -= (size_t)taken;
    }
    append(&connection->out, data, length);
    watch(connection, 1);
    return 1;
}

static void flush(Connection *connection) {
    Buffer *out = &connection->out;
    while (connection->out_offset < out->length) {
        ssize_t taken = send(connection->fd, out->data + connection->out_offset, out->length - connection->out_offset,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
        if (taken < 0) {
            if (errno != EAGAIN && errno != EINTR) hang_up(connection);
            return;
        }
        connection->out_offset += (size_t)taken;
    }
    out->length = connection->out_offset = 0;
    watch(connection, 0);
    if (connection->close_after) hang_up(connection);
}

static void finish(Connection *connection, int close_after) {
    connection->close_after = close_after;
    if (close_after && !connection->out.length) hang_up(connection);
}

static void answer(Connection *connection, int status, const char *type, const char *body, size_t length, int close) {
    Buffer reply = {0};
    print(&reply, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s\r\n", status,
          status == 200 ? "OK" : "Not Found", type, length, close ? "Connection: close\r\n" : "");
    append(&reply, body, length);
    transmit(connection, reply.data, reply.length);
    free(reply.data);
    finish(connection, close);
}

static void answer_json(Connection *connection, int status, const char *body, int close) {
    answer(connection, status, "application/json", body, strlen(body), close);
}

/* ---- the log ---- */

static int compare_int64(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void print_percentiles(Buffer *buffer, const char *name, int64_t *values, size_t count) {
    if (!count) {
        print(buffer, "\"%s\":null,", name);
        return;
    }
    qsort(values, count, sizeof *values, compare_int64);
    print(buffer, "\"%s\":{\"p50\":%" PRId64 ",\"p99\":%" PRId64 ",\"max\":%" PRId64 "},", name, values[(count - 1) / 2],
          values[(size_t)((double)(count - 1) * 0.99)], values[count - 1]);
}

static void print_summary(Buffer *buffer) {
    size_t tokens = 0, blocked = 0;
    for (size_t i = 0; i < request_count; i++) tokens += (size_t)requests[i]->sent, blocked += (size_t)requests[i]->blocked;
    int64_t *values = must(malloc((tokens + sends + 1) * sizeof *values));
    size_t count = 0;
    for (size_t i = 0; i < request_count; i++)
        for (int k = 0; k < requests[i]->sent; k++)
            values[count++] = requests[i]->sent_ns[k] - (requests[i]->due_ns + k * requests[i]->interval_ns);
    print(buffer, "{\"requests\":%zu,\"tokens\":%zu,\"blocked\":%zu,", request_count, tokens, blocked);
    print_percentiles(buffer, "late_ns", values, count);
    for (count = 0; count < sends; count++) values[count] = send_took_ns[count];
    print_percentiles(buffer, "send_call_ns", values, count);
    free(values);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    print(buffer, "\"preempted\":%ld,\"ttft_ns\":%" PRId64 ",\"itl_ns\":%" PRId64 ",\"stagger_ns\":%" PRId64 ",\"pump\":%g}\n",
          usage.ru_nivcsw, options.ttft_ns, options.itl_ns, options.stagger_ns, options.pump);
}

static void print_log(Buffer *buffer) {
    print_summary(buffer);
    for (size_t i = 0; i < request_count; i++) {
        const Request *request = requests[i];
        print(buffer,
              "{\"request\":%zu,\"id\":\"%s\",\"api\":\"%s\",\"tokens\":%d,\"received_ns\":%" PRId64 ",\"read_ns\":%" PRId64
              ",\"due_ns\":%" PRId64 ",\"interval_ns\":%" PRId64 ",\"blocked\":%d,\"sent_ns\":[",
              i, request->id, request->chat ? "chat" : "completions", request->tokens, request->received_ns,
              request->read_ns, request->due_ns, request->interval_ns, request->blocked);
        for (int k = 0; k < request->sent; k++) print(buffer, "%s%" PRId64, k ? "," : "", request->sent_ns[k]);
        print(buffer, "]}\n");
    }
}

static void write_log(void) {
    if (!options.log) return;
    Buffer buffer = {0};
    print_log(&buffer);
    FILE *file = fopen(options.log, "w");
    if (!file || fwrite(buffer.data, 1, buffer.length, file) != buffer.length || fclose(file)) {
        fprintf(stderr, "reference_server: cannot write %s: %s\n", options.log, strerror(errno));
        exit(1);
    }
}

/* ---- streaming ---- */

static void print_usage(char *text, size_t size, const Request *request, int tokens) {
    snprintf(text, size, "{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}", request->prompt_tokens,
             request->prompt_tokens + tokens, tokens);
}

/* One server-sent event as one HTTP chunk. */
static int frame(char *target, size_t size, const char *event) {
    return snprintf(target, size, "%zx\r\n%s\r\n", strlen(event), event);
}

static int token_event(char *event, size_t size, const Request *request, int index) {
    char usage[128] = "null", ids[32] = "";
    const char *finish = index + 1 == request->tokens ? "\"length\"" : "null";
    if (request->usage_each) print_usage(usage, sizeof usage, request, index + 1);
    if (request->token_ids) snprintf(ids, sizeof ids, ",\"token_ids\":[%d]", index % 1000);
    if (request->chat)
        return snprintf(event, size,
                        "data: {\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
                        "\"model\":\"%s\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" w%d\"},\"logprobs\":null,"
                        "\"finish_reason\":%s%s}],\"usage\":%s}\n\n",
                        request->id, MODEL, index % 1000, finish, ids, usage);
    return snprintf(event, size,
                    "data: {\"id\":\"cmpl-%s\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"%s\","
                    "\"choices\":[{\"index\":0,\"text\":\" w%d\",\"logprobs\":null,\"finish_reason\":%s,"
                    "\"stop_reason\":null,\"prompt_logprobs\":null%s}],\"usage\":%s}\n\n",
                    request->id, MODEL, index % 1000, finish, ids, usage);
}

/* Like vLLM, a chat answer opens with a chunk that holds only the role; it goes out with the first token. */
static int role_event(char *event, size_t size, const Request *request) {
    return snprintf(event, size,
                    "data: {\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":"
                    "\"%s\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":"
                    "null,\"finish_reason\":null}],\"usage\":null}\n\n",
                    request->id, MODEL);
}

static void serve_next(Connection *connection);

static void end_stream(Request *request) {
    Connection *connection = request->connection;
    char tail[1024], event[768], usage[128];
    int length = 0;
    if (request->usage) {
        print_usage(usage, sizeof usage, request, request->tokens);
        snprintf(event, sizeof event,
                 "data: {\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":1700000000,\"model\":\"%s\",\"choices\":[],"
                 "\"usage\":%s}\n\n",
                 request->chat ? "chatcmpl" : "cmpl", request->id,
                 request->chat ? "chat.completion.chunk" : "text_completion", MODEL, usage);
        length = frame(tail, sizeof tail, event);
    }
    length += frame(tail + length, sizeof tail - (size_t)length, "data: [DONE]\n\n");
    length += snprintf(tail + length, sizeof tail - (size_t)length, "0\r\n\r\n");
    transmit(connection, tail, (size_t)length);
    connection->streaming = NULL;
    request->connection = NULL;
    finish(connection, request->close);
    if (!connection->dead) serve_next(connection);
}

static void record_send(int64_t took_ns) {
    if (sends == sends_capacity) {
        sends_capacity = sends_capacity ? sends_capacity * 2 : 1 << 20;
        send_took_ns = must(realloc(send_took_ns, sends_capacity * sizeof *send_took_ns));
    }
    send_took_ns[sends++] = took_ns > INT32_MAX ? INT32_MAX : (int32_t)took_ns;
}

static void send_token(Request *request) {
    if (!request->connection) return; /* the client has gone */
    char event[1024], bytes[2304];
    int length = 0;
    if (request->chat && !request->sent) {
        role_event(event, sizeof event, request);
        length = frame(bytes, sizeof bytes, event);
    }
    token_event(event, sizeof event, request, request->sent);
    length += frame(bytes + length, sizeof bytes - (size_t)length, event);
    int64_t before = now_ns();
    request->blocked += transmit(request->connection, bytes, (size_t)length);
    record_send(now_ns() - before);
    request->sent_ns[request->sent++] = before;
    if (request->sent == request->tokens)
        end_stream(request);
    else
        schedule(request->due_ns + request->sent * request->interval_ns, request);
}

/* Pump mode: start the waiting requests, interleaved so that one token is due every 1/RATE seconds. */
static void start_waiting(int64_t now) {
    size_t streams = request_count - waiting_from;
    double step_ns = 1e9 / options.pump;
    int64_t first_ns = now + options.ttft_ns;
    for (size_t i = 0; i < streams; i++) {
        Request *request = requests[waiting_from + i];
        request->due_ns = first_ns + (int64_t)((double)i * step_ns);
        request->interval_ns = (int64_t)((double)streams * step_ns);
        schedule(request->due_ns, request);
    }
    waiting_from = request_count;
}

static int waiting_is_over(int64_t now) {
    if (options.pump <= 0 || waiting_from == request_count) return 0;
    return request_count - waiting_from >= (size_t)options.streams || now - last_arrival_ns > options.gather_ns;
}

static void plan(Request *request) {
    size_t number = request_count - 1;
    last_arrival_ns = request->read_ns;
    if (options.pump > 0) return;
    int64_t shift_ns = options.itl_ns ? (int64_t)number * options.stagger_ns % options.itl_ns : 0;
    request->due_ns = request->received_ns + options.ttft_ns + shift_ns;
    request->interval_ns = options.itl_ns;
    schedule(request->due_ns, request);
}

/* ---- requests ---- */

/* The value after "key": in a JSON text, found without parsing it: load generators do not write these keys in prompts. */
static const char *value_of(const char *body, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *place = strstr(body, quoted);
    if (!place) return NULL;
    place += strlen(quoted);
    while (*place == ' ' || *place == '\t' || *place == '\n' || *place == '\r') place++;
    if (*place++ != ':') return NULL;
    while (*place == ' ' || *place == '\t' || *place == '\n' || *place == '\r') place++;
    return place;
}

static int is_true(const char *body, const char *key) {
    const char *value = value_of(body, key);
    return value && !strncmp(value, "true", 4);
}

static int asked_tokens(const char *body) {
    const char *value = value_of(body, "max_completion_tokens");
    if (!value || *value < '0' || *value > '9') value = value_of(body, "max_tokens");
    int tokens = value ? atoi(value) : 0;
    return tokens > 0 ? tokens : 16;
}

/* Token ids are counted, words of a text prompt are taken for tokens. */
static int count_prompt(const char *body) {
    const char *value = value_of(body, "prompt");
    int count = 1;
    if (value && *value == '[') {
        for (; *value && *value != ']'; value++) count += *value == ',';
        return count;
    }
    value = value ? value : value_of(body, "content");
    if (!value) return 1;
    for (value++; *value && *value != '"'; value++) count += *value == ' ';
    return count;
}

/* An id is echoed in JSON: what would need escaping is left out. */
static void copy_id(char *target, const char *source, size_t length) {
    size_t kept = 0;
    for (size_t i = 0; i < length && kept + 1 < ID_LENGTH; i++)
        if (source[i] > ' ' && source[i] < 127 && source[i] != '"' && source[i] != '\\') target[kept++] = source[i];
    target[kept] = 0;
}

static const char *header_of(const char *head, const char *end, const char *name, size_t *length) {
    size_t name_length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line && line < end; line = strstr(line + 2, "\r\n")) {
        const char *text = line + 2;
        if (strncasecmp(text, name, name_length) || text[name_length] != ':') continue;
        text += name_length + 1;
        while (*text == ' ' || *text == '\t') text++;
        *length = strcspn(text, "\r\n");
        return text;
    }
    return NULL;
}

static void start_stream(Connection *connection, int chat, const char *id, size_t id_length, const char *body, int close) {
    Request *request = must(calloc(1, sizeof *request));
    if (request_count == request_capacity) {
        request_capacity = request_capacity ? request_capacity * 2 : 4096;
        requests = must(realloc(requests, request_capacity * sizeof(Request *)));
    }
    copy_id(request->id, id ? id : "", id ? id_length : 0);
    if (!*request->id) snprintf(request->id, sizeof request->id, "reference-%zu", request_count);
    requests[request_count++] = request;
    request->connection = connection;
    request->chat = chat;
    request->close = close;
    request->tokens = asked_tokens(body);
    request->prompt_tokens = count_prompt(body);
    request->token_ids = is_true(body, "return_token_ids");
    request->usage = is_true(body, "include_usage");
    request->usage_each = is_true(body, "continuous_usage_stats");
    request->received_ns = connection->received_ns;
    request->read_ns = now_ns();
    request->sent_ns = must(calloc((size_t)request->tokens, sizeof *request->sent_ns));
    connection->streaming = request;
    char head[512];
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: "
                          "chunked\r\nX-Request-Id: %s\r\n%s\r\n",
                          request->id, close ? "Connection: close\r\n" : "");
    transmit(connection, head, (size_t)length);
    plan(request);
}

static void answer_once(Connection *connection, int chat, const char *body, int close) {
    char text[768];
    const char *choice = chat ? "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" w0\"},\"finish_reason\":\"length\"}"
                              : "{\"index\":0,\"text\":\" w0\",\"logprobs\":null,\"finish_reason\":\"length\"}";
    int prompt = count_prompt(body);
    snprintf(text, sizeof text,
             "{\"id\":\"%s-0\",\"object\":\"%s\",\"created\":1700000000,\"model\":\"%s\",\"choices\":[%s],\"usage\":"
             "{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":1}}",
             chat ? "chatcmpl" : "cmpl", chat ? "chat.completion" : "text_completion", MODEL, choice, prompt, prompt + 1);
    answer_json(connection, 200, text, close);
}

static int path_is(const char *path, size_t length, const char *expected) {
    return length == strlen(expected) && !memcmp(path, expected, length);
}

static void dispatch(Connection *connection, const char *head, const char *head_end, const char *body) {
    const char *path = strchr(head, ' ') + 1;
    size_t path_length = strcspn(path, " ?\r\n"), length = 0, id_length = 0;
    const char *keep = header_of(head, head_end, "Connection", &length);
    int close = keep && length == 5 && !strncasecmp(keep, "close", 5);
    int chat = path_is(path, path_length, "/v1/chat/completions");
    const char *id = header_of(head, head_end, "X-Request-Id", &id_length);
    if (chat || path_is(path, path_length, "/v1/completions")) {
        if (is_true(body, "stream"))
            start_stream(connection, chat, id, id_length, body, close);
        else
            answer_once(connection, chat, body, close);
    } else if (path_is(path, path_length, "/health")) {
        answer(connection, 200, "text/plain", "", 0, close);
    } else if (path_is(path, path_length, "/v1/models")) {
        answer_json(connection, 200,
                    "{\"object\":\"list\",\"data\":[{\"id\":\"reference\",\"object\":\"model\",\"created\":1700000000,"
                    "\"owned_by\":\"reference\",\"root\":\"reference\",\"max_model_len\":65536}]}",
                    close);
    } else if (path_is(path, path_length, "/version")) {
        answer_json(connection, 200, "{\"version\":\"reference\"}", close);
    } else if (path_is(path, path_length, "/dump")) {
        Buffer log = {0};
        print_log(&log);
        answer(connection, 200, "application/jsonl", log.data, log.length, close);
        free(log.data);
    } else {
        answer_json(connection, 404, "{\"error\":{\"message\":\"not found\",\"type\":\"NotFoundError\",\"code\":404}}", close);
    }
}

/* Undo a chunked body in place. Returns the bytes that it took, 0 when it is not complete, -1 when it is no such body. */
static ssize_t dechunk(char *body, size_t available, Buffer *target) {
    size_t place = 0;
    for (;;) {
        char *line_end = memmem(body + place, available - place, "\r\n", 2);
        if (!line_end) return 0;
        char *digits_end;
        size_t size = strtoul(body + place, &digits_end, 16);
        if (digits_end == body + place || size > MAX_BODY) return -1;
        place = (size_t)(line_end - body) + 2;
        if (!size) {
            /* No client here sends trailers. */
            return available - place < 2 ? 0 : (ssize_t)place + 2;
        }
        if (available - place < size + 2) return 0;
        append(target, body + place, size);
        place += size + 2;
    }
}

/* Carry out the request at the front of what has been read, if it is complete; returns whether there was one. */
static int serve_one(Connection *connection) {
    Buffer *in = &connection->in;
    char *head_end = in->length ? strstr(in->data, "\r\n\r\n") : NULL;
    if (!head_end) return 0;
    size_t head_length = (size_t)(head_end - in->data) + 4, length = 0;
    if (!memchr(in->data, ' ', head_length)) {
        hang_up(connection);
        return 0;
    }
    Buffer body = {0};
    append(&body, "", 0);
    size_t taken = head_length;
    const char *coding = header_of(in->data, head_end, "Transfer-Encoding", &length);
    if (coding && !strncasecmp(coding, "chunked", 7)) {
        ssize_t used = dechunk(in->data + head_length, in->length - head_length, &body);
        if (used <= 0) {
            free(body.data);
            if (used < 0) hang_up(connection);
            return 0;
        }
        taken += (size_t)used;
    } else {
        const char *text = header_of(in->data, head_end, "Content-Length", &length);
        size_t size = text ? strtoul(text, NULL, 10) : 0;
        if (size > MAX_BODY) hang_up(connection);
        if (in->length - head_length < size || connection->dead) {
            free(body.data);
            return 0;
        }
        append(&body, in->data + head_length, size);
        taken += size;
    }
    dispatch(connection, in->data, head_end, body.data);
    free(body.data);
    memmove(in->data, in->data + taken, in->length - taken);
    in->length -= taken;
    in->data[in->length] = 0;
    return 1;
}

static void serve_next(Connection *connection) {
    while (!connection->dead && !connection->streaming && !connection->close_after && serve_one(connection)) {
    }
}

static int64_t received_at(struct msghdr *message) {
    int64_t monotonic = now_ns(), wall = clock_ns(CLOCK_REALTIME);
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPNS) continue;
        struct timespec stamp;
        memcpy(&stamp, CMSG_DATA(part), sizeof stamp);
        return (int64_t)stamp.tv_sec * 1000000000 + stamp.tv_nsec - wall + monotonic;
    }
    return monotonic;
}

static void read_from(Connection *connection) {
    char control[128];
    for (;;) {
        reserve(&connection->in, 65536);
        struct iovec part = {connection->in.data + connection->in.length, 65536};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t length = recvmsg(connection->fd, &message, MSG_DONTWAIT);
        if (length < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (length <= 0 || connection->in.length + (size_t)length > MAX_BODY) {
            hang_up(connection);
            return;
        }
        connection->received_ns = received_at(&message);
        connection->in.length += (size_t)length;
        connection->in.data[connection->in.length] = 0;
        if (length < 65536) break;
    }
    serve_next(connection);
}

static void accept_all(int listener) {
    int fd, on = 1, size = 1 << 20;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        Connection *connection = must(calloc(1, sizeof *connection));
        connection->fd = fd;
        struct epoll_event event = {EPOLLIN, {.ptr = connection}};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
}

static void handle_events(int listener, int timeout_ms) {
    struct epoll_event events[MAX_EVENTS];
    int count = epoll_wait(poller, events, MAX_EVENTS, timeout_ms);
    for (int i = 0; i < count; i++) {
        Connection *connection = events[i].data.ptr;
        if (!connection) {
            accept_all(listener);
            continue;
        }
        if (!connection->dead && events[i].events & EPOLLOUT) flush(connection);
        if (!connection->dead && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_from(connection);
        if (connection->dead) release(connection); /* a socket is named once in a call, so nothing names it again */
    }
}

static void run(int listener) {
    int unpolled = 0;
    while (!stopping) {
        int64_t now = now_ns();
        if (waiting_is_over(now)) start_waiting(now);
        if (heap_length && heap[0].due_ns <= now && unpolled < SENDS_PER_POLL) {
            Request *request = pop();
            Connection *connection = request->connection;
            send_token(request);
            if (connection && connection->dead) release(connection);
            unpolled++;
            continue;
        }
        if (heap_length && !unpolled && heap[0].due_ns - now < POLL_MARGIN_NS) continue;
        unpolled = 0;
        /* Without a stream there is nothing to be late for, and the core can rest. */
        int idle = !heap_length && (options.pump <= 0 || waiting_from == request_count);
        handle_events(listener, idle ? 100 : 0);
    }
}

static int listen_on(int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(listener, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on); /* accepted sockets inherit it */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 4096) ||
        getsockname(listener, (struct sockaddr *)&address, &length)) {
        fprintf(stderr, "reference_server: cannot listen on port %d: %s\n", port, strerror(errno));
        exit(1);
    }
    struct epoll_event event = {EPOLLIN, {.ptr = NULL}};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    printf("listening %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

static void stop(int number) {
    (void)number;
    stopping = 1;
}

static void read_options(int count, char **words) {
    for (int i = 1; i < count; i += 2) {
        const char *name = words[i], *value = i + 1 < count ? words[i + 1] : NULL;
        if (!value) {
            fprintf(stderr, "reference_server: %s needs a value\n", name);
            exit(2);
        }
        if (!strcmp(name, "--port")) options.port = atoi(value);
        else if (!strcmp(name, "--cpu")) options.cpu = atoi(value);
        else if (!strcmp(name, "--ttft-us")) options.ttft_ns = atoll(value) * 1000;
        else if (!strcmp(name, "--itl-us")) options.itl_ns = atoll(value) * 1000;
        else if (!strcmp(name, "--stagger-us")) options.stagger_ns = atoll(value) * 1000;
        else if (!strcmp(name, "--gather-us")) options.gather_ns = atoll(value) * 1000;
        else if (!strcmp(name, "--pump")) options.pump = atof(value);
        else if (!strcmp(name, "--streams")) options.streams = atoi(value);
        else if (!strcmp(name, "--log")) options.log = value;
        else {
            fprintf(stderr, "reference_server: unknown option %s; the options are in the head of reference_server.c\n", name);
            exit(2);
        }
    }
}

static void own_the_core(void) {
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (options.cpu >= 0) {
        cpu_set_t cores;
        CPU_ZERO(&cores);
        CPU_SET(options.cpu, &cores);
        if (sched_setaffinity(0, sizeof cores, &cores)) {
            fprintf(stderr, "reference_server: cannot run on core %d: %s\n", options.cpu, strerror(errno));
            exit(1);
        }
    }
}

int main(int count, char **words) {
    read_options(count, words);
    own_the_core();
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    poller = epoll_create1(EPOLL_CLOEXEC);
    int listener = listen_on(options.port);
    run(listener);
    write_log();
    return 0;
}
