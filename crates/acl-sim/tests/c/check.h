/* Assertions of the test programs: the first that fails tells where, and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl_sim.h"

/* The call must give this code. */
#define CODE(code, call)                                                                           \
    do {                                                                                           \
        int got_ = (int)(call);                                                                    \
        if (got_ != (code)) {                                                                      \
            const char *text_ = aclGetRecentErrMsg();                                              \
            fprintf(stderr, "%s:%d: %s gave %d, not %d\n%s\n", __FILE__, __LINE__, #call, got_,    \
                (int)(code), text_ ? text_ : "");                                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CODE(0, call)
#define TRUE(fact)                                                                                 \
    do {                                                                                           \
        if (!(fact)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #fact);                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Device memory that holds `n` numbers. */
static inline void *on_device(const void *data, size_t bytes)
{
    void *memory = NULL;
    OK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    if (data != NULL) {
        OK(aclrtMemcpy(memory, bytes, data, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    }
    return memory;
}

static inline int32_t number_at(const void *memory)
{
    int32_t number = -1;
    OK(aclrtMemcpy(&number, sizeof number, memory, sizeof number, ACL_MEMCPY_DEVICE_TO_HOST));
    return number;
}

/* A gate that holds a stream up until it is opened: work on device memory goes through host functions. */
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int open;
} gate;

#define GATE {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0}

static inline void pass(void *argument)
{
    gate *g = argument;
    pthread_mutex_lock(&g->mutex);
    while (!g->open) {
        pthread_cond_wait(&g->changed, &g->mutex);
    }
    pthread_mutex_unlock(&g->mutex);
}

static inline void open_gate(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    g->open = 1;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

static inline void increment(void *argument)
{
    ++*(int32_t *)argument;
}

static inline void twice(void *argument)
{
    *(int32_t *)argument *= 2;
}

#endif
