/* A HTTP server that misbehaves, for the tests of `fetch`: bad_server FILE PORT_FILE. It serves
 * FILE on a free port of 127.0.0.1, writes the port to PORT_FILE and runs until it is killed. The
 * path chooses what goes wrong; a number in it counts requests of that path since the start:
 *
 *   /good           whole answers and ranges with a strong ETag
 *   /busy/N         429 with "Retry-After: 1" for the first N requests, then good
 *   /broken/N       500 for the first N requests, then good
 *   /away           429 that asks to come back in an hour
 *   /reset/N        closes with a reset after half of what is left, N times, then good
 *   /cut            Content-Length of the whole, but half of the content, always
 *   /long           more content than the file has, without Content-Length
 *   /other          200 with other content of the same size
 *   /changed/N      a new ETag at each request; the first N have other content, cut half-way
 *   /ignores/N      as /changed/N, but sends the part that is asked for whatever If-Range says
 *   /misplaced      half, then one 206 with a range that was not asked for, then good
 *   /encoded        good, but says that it is compressed
 *   /to-plain       redirects to http on another machine
 *   /no-range       ignores Range (always 200), the first answer is cut half-way
 *   /stuck/N        the first N requests get half and then silence
 *   /wrong-range    206 with a range that was not asked for
 *   /beyond         416 to every request with a Range
 *   /loop           redirects to itself
 *   /to-file        redirects to file:///etc/passwd
 *   /to-ftp         redirects to ftp://127.0.0.1/
 *   /hub-moved/X    redirects to /good with the hub's headers (hash and size of FILE)
 *   /hub-lies/X     the same with a wrong hash
 *   /seen-token     good when an Authorization header was there, else 401
 *   /forbidden      401
 *   anything else   404
 *
 * One request a connection; every connection is a process, so that a stuck one harms no other. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_PATHS = 64, HEADER = 8192 };

/* Requests per path, shared by all processes. */
struct counter {
    char path[256];
    unsigned count;
};

static struct counter *counters;
static char *content;
static size_t content_len;
static char content_hash[65];

struct request {
    int fd;
    char path[256];
    unsigned number; /* of this path, from 1 */
    bool has_range;
    size_t start;
    char if_range[256];
    bool has_token;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        const ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent <= 0) {
            _exit(0); /* the client has gone */
        }
        bytes += sent;
        len -= (size_t)sent;
    }
}

static void send_head(const struct request *request, const char *status, const char *fields)
{
    char head[1024];
    const int len =
        snprintf(head, sizeof head, "HTTP/1.1 %s\r\nConnection: close\r\n%s\r\n", status, fields);
    send_all(request->fd, head, (size_t)len);
}

/* With a reset instead of an orderly end. */
static void reset(int fd)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    (void)close(fd);
    _exit(0);
}

/* The head of an honest answer; returns where the content starts. */
static size_t begin_good(const struct request *request, const char *etag, bool ranges)
{
    char fields[512];
    const bool same = request->if_range[0] == '\0' || strcmp(request->if_range, etag) == 0;
    if (ranges && request->has_range && request->start >= content_len) {
        (void)snprintf(fields, sizeof fields, "Content-Range: bytes */%zu\r\nContent-Length: 0\r\n",
                       content_len);
        send_head(request, "416 Range Not Satisfiable", fields);
        _exit(0);
    }
    if (ranges && request->has_range && same) {
        (void)snprintf(fields, sizeof fields,
                       "ETag: %s\r\nContent-Range: bytes %zu-%zu/%zu\r\nContent-Length: %zu\r\n",
                       etag, request->start, content_len - 1, content_len,
                       content_len - request->start);
        send_head(request, "206 Partial Content", fields);
        return request->start;
    }
    (void)snprintf(fields, sizeof fields, "ETag: %s\r\nContent-Length: %zu\r\n", etag, content_len);
    send_head(request, "200 OK", fields);
    return 0;
}

static void good(const struct request *request)
{
    const size_t start = begin_good(request, "\"v1\"", true);
    send_all(request->fd, content + start, content_len - start);
}

/* The honest head, then half of what it promised. */
static void half(const struct request *request, const char *etag, bool ranges)
{
    const size_t start = begin_good(request, etag, ranges);
    send_all(request->fd, content + start, (content_len - start) / 2);
}

static void hub(const struct request *request, bool lie)
{
    char fields[512];
    char hash[65];
    memcpy(hash, content_hash, sizeof hash);
    if (lie) {
        hash[0] = hash[0] == '0' ? '1' : '0';
    }
    (void)snprintf(fields, sizeof fields,
                   "Location: /good\r\nX-Linked-Etag: \"%s\"\r\nX-Linked-Size: %zu\r\n"
                   "X-Repo-Commit: 0123456789abcdef0123456789abcdef01234567\r\n"
                   "Content-Length: 0\r\n",
                   hash, content_len);
    send_head(request, "302 Found", fields);
}

static void redirect(const struct request *request, const char *target)
{
    char fields[512];
    (void)snprintf(fields, sizeof fields, "Location: %s\r\nContent-Length: 0\r\n", target);
    send_head(request, "302 Found", fields);
}

static void too_long(const struct request *request)
{
    send_head(request, "200 OK", "");
    send_all(request->fd, content, content_len);
    for (int i = 0; i < 64; i++) {
        send_all(request->fd, content, content_len < 65536 ? content_len : 65536);
    }
}

static void other_content(const struct request *request)
{
    char fields[128];
    char *copy = malloc(content_len);
    if (copy == NULL) {
        _exit(1);
    }
    memcpy(copy, content, content_len);
    copy[content_len / 2] ^= 1;
    (void)snprintf(fields, sizeof fields, "ETag: \"o\"\r\nContent-Length: %zu\r\n", content_len);
    send_head(request, "200 OK", fields);
    send_all(request->fd, copy, content_len);
    free(copy);
}

static void wrong_range(const struct request *request)
{
    char fields[256];
    if (!request->has_range) {
        half(request, "\"w\"", true);
        return;
    }
    (void)snprintf(fields, sizeof fields,
                   "ETag: \"w\"\r\nContent-Range: bytes 0-%zu/%zu\r\nContent-Length: %zu\r\n",
                   content_len - 1, content_len, content_len);
    send_head(request, "206 Partial Content", fields);
    send_all(request->fd, content, content_len);
}

/* A new version at each request, and no notice of If-Range. */
static void ignore_condition(struct request *request, unsigned limit)
{
    char etag[64];
    const bool last = request->number > limit;
    (void)snprintf(etag, sizeof etag, "\"v%u\"", request->number);
    request->if_range[0] = '\0';
    content[0] ^= last ? 0 : 1; /* ours alone: every connection is a process */
    if (last) {
        const size_t start = begin_good(request, etag, true);
        send_all(request->fd, content + start, content_len - start);
    } else {
        half(request, etag, true);
    }
}

/* The number at the end of "/word/N"; false when the path is no such. */
static bool is_counted(const struct request *request, const char *word, unsigned *limit)
{
    const size_t len = strlen(word);
    if (strncmp(request->path, word, len) != 0 || request->path[len] != '/') {
        return false;
    }
    *limit = (unsigned)strtoul(request->path + len + 1, NULL, 10);
    return true;
}

static void answer_counted(const struct request *request)
{
    char etag[64];
    unsigned limit = 0;
    if (is_counted(request, "/busy", &limit)) {
        if (request->number <= limit) {
            send_head(request, "429 Too Many Requests", "Retry-After: 1\r\nContent-Length: 0\r\n");
            return;
        }
    } else if (is_counted(request, "/broken", &limit)) {
        if (request->number <= limit) {
            send_head(request, "500 Internal Server Error", "Content-Length: 5\r\n");
            send_all(request->fd, "oops\n", 5);
            return;
        }
    } else if (is_counted(request, "/reset", &limit)) {
        if (request->number <= limit) {
            half(request, "\"v1\"", true);
            usleep(50000);
            reset(request->fd);
        }
    } else if (is_counted(request, "/changed", &limit)) {
        (void)snprintf(etag, sizeof etag, "\"v%u\"", request->number);
        if (request->number <= limit) {
            content[0] ^= 1; /* ours alone: every connection is a process */
            half(request, etag, true);
            return;
        }
        const size_t start = begin_good(request, etag, true);
        send_all(request->fd, content + start, content_len - start);
        return;
    } else if (is_counted(request, "/ignores", &limit)) {
        struct request without = *request;
        ignore_condition(&without, limit);
        return;
    } else if (is_counted(request, "/stuck", &limit)) {
        if (request->number <= limit) {
            half(request, "\"v1\"", true);
            sleep(60);
            return;
        }
    } else {
        send_head(request, "404 Not Found", "Content-Length: 0\r\n");
        return;
    }
    good(request);
}

static void answer(const struct request *request)
{
    const char *const path = request->path;
    if (strcmp(path, "/good") == 0) {
        good(request);
    } else if (strcmp(path, "/away") == 0) {
        send_head(request, "429 Too Many Requests", "Retry-After: 3600\r\nContent-Length: 0\r\n");
    } else if (strcmp(path, "/cut") == 0) {
        half(request, "\"v1\"", false);
    } else if (strcmp(path, "/long") == 0) {
        too_long(request);
    } else if (strcmp(path, "/other") == 0) {
        other_content(request);
    } else if (strcmp(path, "/no-range") == 0) {
        if (request->number == 1) {
            half(request, "\"v1\"", false);
        } else {
            const size_t start = begin_good(request, "\"v1\"", false);
            send_all(request->fd, content + start, content_len - start);
        }
    } else if (strcmp(path, "/wrong-range") == 0) {
        wrong_range(request);
    } else if (strcmp(path, "/encoded") == 0) {
        char fields[128];
        (void)snprintf(fields, sizeof fields, "Content-Encoding: gzip\r\nContent-Length: %zu\r\n",
                       content_len);
        send_head(request, "200 OK", fields);
        send_all(request->fd, content, content_len);
    } else if (strcmp(path, "/misplaced") == 0) {
        if (request->number < 3) {
            wrong_range(request);
        } else {
            good(request);
        }
    } else if (strcmp(path, "/beyond") == 0) {
        if (request->has_range) {
            send_head(request, "416 Range Not Satisfiable", "Content-Length: 0\r\n");
        } else if (request->number == 1) {
            half(request, "\"b\"", true);
        } else {
            good(request);
        }
    } else if (strcmp(path, "/loop") == 0) {
        redirect(request, "/loop");
    } else if (strcmp(path, "/to-file") == 0) {
        redirect(request, "file:///etc/passwd");
    } else if (strcmp(path, "/to-plain") == 0) {
        redirect(request, "http://192.0.2.1/x"); /* RFC 5737: nobody's */
    } else if (strcmp(path, "/to-ftp") == 0) {
        redirect(request, "ftp://127.0.0.1/x");
    } else if (strncmp(path, "/hub-moved/", 11) == 0) {
        hub(request, false);
    } else if (strncmp(path, "/hub-lies/", 10) == 0) {
        hub(request, true);
    } else if (strncmp(path, "/seen-token", 11) == 0 && request->has_token) {
        good(request);
    } else if (strncmp(path, "/seen-token", 11) == 0 || strcmp(path, "/forbidden") == 0) {
        send_head(request, "401 Unauthorized", "Content-Length: 0\r\n");
    } else {
        answer_counted(request);
    }
}

static unsigned count_request(const char *path)
{
    for (size_t i = 0; i < MAX_PATHS; i++) {
        if (counters[i].path[0] == '\0') {
            (void)snprintf(counters[i].path, sizeof counters[i].path, "%s", path);
        }
        if (strcmp(counters[i].path, path) == 0) {
            return __atomic_add_fetch(&counters[i].count, 1, __ATOMIC_SEQ_CST);
        }
    }
    return 1;
}

static void serve(int fd)
{
    struct request request = {.fd = fd};
    char head[HEADER];
    size_t len = 0;
    while (len < sizeof head - 1) {
        const ssize_t got = read(fd, head + len, sizeof head - 1 - len);
        if (got <= 0) {
            _exit(0);
        }
        len += (size_t)got;
        head[len] = '\0';
        if (strstr(head, "\r\n\r\n") != NULL) {
            break;
        }
    }
    if (sscanf(head, "GET %255s HTTP/1.1", request.path) != 1) {
        _exit(0);
    }
    const char *const range = strstr(head, "\r\nRange: bytes=");
    const char *const condition = strstr(head, "\r\nIf-Range: ");
    request.has_range = range != NULL;
    request.start = range != NULL ? strtoul(range + 15, NULL, 10) : 0;
    if (condition != NULL) {
        (void)sscanf(condition + 12, "%255[^\r\n]", request.if_range);
    }
    request.has_token = strstr(head, "\r\nAuthorization: Bearer test-token-1234\r\n") != NULL;
    request.number = count_request(request.path);
    answer(&request);
    (void)shutdown(fd, SHUT_WR);
    while (read(fd, head, sizeof head) > 0) { /* until the client has closed: nothing is reset */
    }
    _exit(0);
}

static void load(const char *path)
{
    FILE *const stream = fopen(path, "rb");
    unsigned char hash[32];
    if (stream == NULL || fseek(stream, 0, SEEK_END) != 0) {
        die(path);
    }
    content_len = (size_t)ftell(stream);
    content = malloc(content_len + 1);
    rewind(stream);
    if (content == NULL || fread(content, 1, content_len, stream) != content_len ||
        EVP_Digest(content, content_len, hash, NULL, EVP_sha256(), NULL) != 1) {
        die(path);
    }
    (void)fclose(stream);
    for (size_t i = 0; i < sizeof hash; i++) {
        (void)snprintf(content_hash + 2 * i, 3, "%02x", hash[i]);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_len = sizeof address;
    if (argc != 3) {
        fprintf(stderr, "usage: bad_server FILE PORT_FILE\n");
        return 2;
    }
    load(argv[1]);
    counters = mmap(NULL, MAX_PATHS * sizeof *counters, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (counters == MAP_FAILED || listener < 0 ||
        bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 64) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &address_len) != 0) {
        die("bad_server");
    }
    FILE *const port_file = fopen(argv[2], "w");
    if (port_file == NULL || fprintf(port_file, "%d\n", ntohs(address.sin_port)) < 0 ||
        fclose(port_file) != 0) {
        die(argv[2]);
    }
    (void)signal(SIGCHLD, SIG_IGN); /* children are not waited for */
    for (;;) {
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0) {
            continue;
        }
        if (fork() == 0) {
            (void)close(listener);
            serve(fd);
        }
        (void)close(fd);
    }
}
