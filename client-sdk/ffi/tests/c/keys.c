// A key store of the app's own that fails, or does not return, once it has begun. `.ci/sdks.sh` runs it plain and under sanitizers.
//
//     keys ROUND.json FULL.json STUCK.json SLOW.json ASIDE.json
//
// ROUND.json is of a participant of a task with a cohort of one and one round, and seals each checkpoint at once; the others are of participants
// of no task. None of them has started before. The secrets are kept by this program, but for those of ASIDE.json.

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "tributary.h"

// ---- the key store

typedef enum {
    WORKS,
    FAILS,
    FAILS_LATER,       // But not on the main thread, which starts participants.
    BLOCKS_LATER,      // Once, until `steps` is large.
    BLOCKS_AT_THE_KEY, // The same when the secrets are read.
} Mode;

typedef struct {
    atomic_int mode, steps;
    pthread_mutex_t lock; // Callbacks may come from any thread.
    char names[2][32];
    uint8_t secrets[2][64];
    size_t counts[2];
} Store;

static pthread_t main_thread;

// The first call, until there are a hundred steps.
static void block(Store *store) {
    if (atomic_fetch_add(&store->steps, 1) == 0) {
        while (atomic_load(&store->steps) < 100) {
            usleep(1000);
        }
    }
}

static ptrdiff_t load_secret(void *context, const char *name, uint8_t *buffer, size_t size) {
    Store *store = context;
    if (atomic_load(&store->mode) == BLOCKS_AT_THE_KEY) {
        block(store);
    }
    ptrdiff_t found = 0;
    pthread_mutex_lock(&store->lock);
    for (int at = 0; at < 2; ++at) {
        if (strcmp(store->names[at], name) == 0 && store->counts[at] <= size) {
            memcpy(buffer, store->secrets[at], store->counts[at]);
            found = (ptrdiff_t)store->counts[at];
        }
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

static int save_secret(void *context, const char *name, const uint8_t *bytes, size_t count) {
    Store *store = context;
    int mode = atomic_load(&store->mode), is_later = !pthread_equal(pthread_self(), main_thread);
    if (mode == FAILS || (mode == FAILS_LATER && is_later)) {
        return 7;
    }
    if (mode == BLOCKS_LATER && is_later) {
        block(store);
    }
    int at = strcmp(name, "journal-key") == 0 ? 0 : 1;
    CHECK(count <= sizeof store->secrets[at] && strlen(name) < sizeof store->names[at]);
    pthread_mutex_lock(&store->lock);
    strcpy(store->names[at], name);
    memcpy(store->secrets[at], bytes, count);
    store->counts[at] = count;
    pthread_mutex_unlock(&store->lock);
    return 0;
}

static TributaryCallbacks keys_in(Store *store) {
    return (TributaryCallbacks){.context = store, .load_secret = load_secret, .save_secret = save_secret};
}

static void wait_for_block(Store *store) {
    while (atomic_load(&store->steps) == 0) {
        usleep(1000);
    }
}

// ---- what becomes of a participant

// Waits until it has a job, or has ended.
static TributaryCode next(TributaryParticipant participant, TributaryJob *job) {
    TributaryCode code;
    while ((code = tributary_next(participant, 200, job)) == TRIBUTARY_CODE_NOTHING) {
    }
    return code;
}

// It works: it enrols if it has not yet.
static void works(TributaryParticipant participant) {
    char id[64];
    TributaryCode code;
    while ((code = tributary_id(participant, id, sizeof id, NULL)) == TRIBUTARY_CODE_NOTHING) {
        usleep(10000);
    }
    EXPECT(OK, code);
    EXPECT(OK, tributary_close(participant, 10000));
}

static void it_fails_after_the_start(const char *options) {
    static Store store = {.mode = FAILS_LATER, .lock = PTHREAD_MUTEX_INITIALIZER};
    TributaryCallbacks app = keys_in(&store);
    TributaryParticipant participant;
    TributaryJob job;
    EXPECT(OK, tributary_start(options, &app, &participant));
    EXPECT_WORDS(JOURNAL, "save_secret returned 7", next(participant, &job));
    EXPECT_WORDS(JOURNAL, "save_secret returned 7", tributary_next(participant, 0, &job));
    EXPECT(OK, tributary_close(participant, 10000));
    atomic_store(&store.mode, WORKS);
    EXPECT(OK, tributary_start(options, &app, &participant));
    works(participant);
}

// It is out for good, and may ask again.
static void withdraws(const char *options, const TributaryCallbacks *app, char *statement, size_t size) {
    TributaryParticipant participant;
    TributaryJob job;
    size_t length = 0;
    EXPECT_WORDS(ARGUMENT, "options is NULL", tributary_withdraw(NULL, app, statement, size, NULL));
    EXPECT(TOO_SMALL, tributary_withdraw(options, app, statement, 8, &length));
    CHECK(length > 8);
    EXPECT(OK, tributary_withdraw(options, app, statement, size, &length));
    CHECK(length == strlen(statement) + 1);
    CHECK(strstr(statement, "\"signature\":\"") != NULL && strstr(statement, "\\\"name\\\":\\\"keyed\\\"") != NULL);
    EXPECT(OK, tributary_start(options, app, &participant));
    EXPECT_WORDS(ENROLLMENT, "was revoked", next(participant, &job));
    EXPECT(OK, tributary_close(participant, 10000));
}

static void it_fails_in_a_round(const char *options) {
    static Store store = {.mode = WORKS, .lock = PTHREAD_MUTEX_INITIALIZER};
    TributaryCallbacks app = keys_in(&store);
    TributaryParticipant participant;
    TributaryJob job;
    EXPECT(OK, tributary_start(options, &app, &participant));
    EXPECT(OK, next(participant, &job));
    atomic_store(&store.mode, FAILS);
    // It is called by the thread that saves, which is the app's here.
    EXPECT_WORDS(JOURNAL, "save_secret returned 7", tributary_job_save_checkpoint(job, (const uint8_t *)"half", 4));
    // The job takes its answer, and nothing of that is sent, since nothing can be kept.
    EXPECT(OK, tributary_job_finish(job, NULL, 0, 5, NULL, 0));
    EXPECT_WORDS(JOURNAL, "open the journal again", next(participant, &job));
    EXPECT(OK, tributary_close(participant, 10000));
    atomic_store(&store.mode, WORKS);
    EXPECT(OK, tributary_start(options, &app, &participant));
    EXPECT(OK, next(participant, &job));
    EXPECT(OK, tributary_job_finish(job, NULL, 0, 5, NULL, 0));
    EXPECT(ENDED, next(participant, &job));
    static char statement[1 << 14];
    EXPECT_WORDS(JOURNAL, "in use", tributary_withdraw(options, &app, statement, sizeof statement, NULL));
    EXPECT(OK, tributary_close(participant, 10000));
    withdraws(options, &app, statement, sizeof statement);
}

static void it_does_not_return(const char *options) {
    static Store store = {.mode = BLOCKS_LATER, .lock = PTHREAD_MUTEX_INITIALIZER};
    TributaryCallbacks app = keys_in(&store);
    TributaryParticipant participant, again;
    TributaryMachine machine;
    TributaryModel model;
    EXPECT(OK, tributary_start(options, &app, &participant));
    wait_for_block(&store);
    // More than it takes for its last requests: it has not ended while it uses what the app may free after OK.
    EXPECT(TIMEOUT, tributary_close(participant, 7000));
    EXPECT(CLOSED, tributary_pause(participant));
    // Its journal is still in use, until the callback returns after all.
    EXPECT_WORDS(JOURNAL, "in use", tributary_start(options, &app, &again));
    EXPECT_WORDS(JOURNAL, "in use", tributary_machine_open(options, &app, &machine));
    EXPECT_WORDS(JOURNAL, "in use", tributary_model_load(options, &app, "absent", &model));
    atomic_fetch_add(&store.steps, 100);
    TributaryCode code;
    while ((code = tributary_start(options, &app, &again)) == TRIBUTARY_CODE_JOURNAL) {
        usleep(10000);
    }
    EXPECT(OK, code);
    works(again);
}

typedef struct {
    const char *options;
    TributaryCallbacks app;
    TributaryParticipant participant;
    TributaryCode code;
} Start;

static void *start_in_thread(void *argument) {
    Start *start = argument;
    start->code = tributary_start(start->options, &start->app, &start->participant);
    return NULL;
}

// The call that starts it waits for its key, and nobody else does.
static void it_does_not_give_the_key(const char *options, const char *aside) {
    static Store store = {.mode = BLOCKS_AT_THE_KEY, .lock = PTHREAD_MUTEX_INITIALIZER};
    Start start = {.options = options, .app = keys_in(&store), .code = TRIBUTARY_CODE_FAILED};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, start_in_thread, &start) == 0);
    wait_for_block(&store);
    TributaryParticipant other;
    EXPECT(OK, tributary_start(aside, NULL, &other));
    works(other);
    atomic_fetch_add(&store.steps, 100);
    CHECK(pthread_join(thread, NULL) == 0 && start.code == TRIBUTARY_CODE_OK);
    works(start.participant);
}

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    CHECK(file != NULL && text != NULL && fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

int main(int count, char **arguments) {
    CHECK(count == 6);
    main_thread = pthread_self();
    char *options[5];
    for (int at = 0; at < 5; ++at) {
        options[at] = read_text(arguments[at + 1]);
    }
    it_fails_in_a_round(options[0]);
    it_fails_after_the_start(options[1]);
    it_does_not_return(options[2]);
    it_does_not_give_the_key(options[3], options[4]);
    for (int at = 0; at < 5; ++at) {
        free(options[at]);
    }
    puts("keys: a key store that fails or does not return stops its own participant alone, and one has withdrawn");
    return 0;
}
