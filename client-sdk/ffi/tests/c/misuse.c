// What a careless app does, with what each call must say. `.ci/sdks.sh` runs it plain and under sanitizers.
//
//     misuse OPTIONS.json OTHER.json | journal | damaged WORDS | holds | capped
//
// OPTIONS.json is of a participant of a task with a cohort of one, three rounds and the tensors w of shape [2, 3] and b of shape
// [2], and allows a model of 1000 bytes; OTHER.json is of a participant with a folder of its own, whose secrets this program keeps.
// With `journal` it enrols and leaves its journal; with `damaged` that was changed, or another process has it, and it must be
// refused with these words. With `holds` it has its journal until its input ends. With `capped` its options allow it a byte a day.

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "tributary.h"

enum { PARAMETERS = 8 };

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    CHECK(file != NULL && text != NULL && fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

// ---- callbacks, which come from the participant's thread

// No callback may come once `is_over`: its participant was closed.
typedef struct {
    _Atomic uint64_t participant;
    atomic_int events, refused, is_good, asked, is_over;
} Told;

static void on_event(void *context, const char *name, const char *fields) {
    Told *told = context;
    CHECK(name[0] != 0 && fields[0] == '{' && !atomic_load(&told->is_over));
    atomic_fetch_add(&told->events, 1);
    TributaryParticipant participant = {atomic_load(&told->participant)};
    if (participant.id != 0) {
        // Calls that wait would wait for this very thread.
        char text[64];
        TributaryJob job;
        EXPECT(IN_CALLBACK, tributary_id(participant, text, sizeof text, NULL));
        EXPECT(IN_CALLBACK, tributary_privacy_spent(participant, text, sizeof text, NULL));
        EXPECT(IN_CALLBACK, tributary_refusals(participant, text, sizeof text, NULL));
        TributaryModel model;
        TributaryDataUse used;
        EXPECT(IN_CALLBACK, tributary_model(participant, "careless", &model));
        EXPECT(IN_CALLBACK, tributary_models(participant, text, sizeof text, NULL));
        EXPECT(IN_CALLBACK, tributary_held_up(participant, text, sizeof text, NULL));
        EXPECT(IN_CALLBACK, tributary_data_use(participant, &used));
        EXPECT(IN_CALLBACK, tributary_next(participant, 0, &job));
        EXPECT(IN_CALLBACK, tributary_close(participant, 0));
        EXPECT(OK, tributary_set_examples(participant, 3));
        atomic_fetch_add(&told->refused, 1);
    }
}

static const TributaryDeviceState GOOD = {
    .charging = 1, .unmetered = 1, .idle = 1, .battery_percent = TRIBUTARY_UNKNOWN, .thermal = 0};

static int device_state(void *context, TributaryDeviceState *state) {
    Told *told = context;
    CHECK(state->charging == TRIBUTARY_UNKNOWN && state->thermal == TRIBUTARY_UNKNOWN && !atomic_load(&told->is_over));
    atomic_fetch_add(&told->asked, 1);
    if (atomic_load(&told->is_good)) {
        *state = GOOD;
    }
    return 0;
}

// ---- before there is anything

static void nothing_is_there(const char *options) {
    TributaryParticipant participant = {0};
    EXPECT_WORDS(ARGUMENT, "options is NULL", tributary_start(NULL, NULL, &participant));
    EXPECT_WORDS(ARGUMENT, "participant is NULL", tributary_start(options, NULL, NULL));
    EXPECT_WORDS(ARGUMENT, "participant is not aligned",
                 tributary_start(options, NULL, (TributaryParticipant *)((uintptr_t)&participant + 1)));
    EXPECT_WORDS(ARGUMENT, "options is not UTF-8", tributary_start("{\"server\": \"\xff\"}", NULL, &participant));
    EXPECT_WORDS(CONFIGURATION, "", tributary_start("server", NULL, &participant));
    EXPECT_WORDS(CONFIGURATION, "missing field `server`", tributary_start("{}", NULL, &participant));
    TributaryCallbacks half = {.load_secret = (ptrdiff_t(*)(void *, const char *, uint8_t *, size_t))0, .save_secret = NULL};
    half.save_secret = (int (*)(void *, const char *, const uint8_t *, size_t))abort;
    EXPECT_WORDS(ARGUMENT, "go together", tributary_start(options, &half, &participant));
    TributaryCallbacks mute = {.show_certificate = (int (*)(void *, const char *, const uint8_t *, size_t))abort};
    EXPECT_WORDS(ARGUMENT, "begin_request and show_certificate go together", tributary_start(options, &mute, &participant));
    CHECK(participant.id == 0);

    char text[64];
    size_t length;
    const uint64_t made_up[] = {0, 1, 12345, UINT64_MAX};
    for (size_t number = 0; number < sizeof made_up / sizeof *made_up; ++number) {
        TributaryParticipant none = {made_up[number]};
        TributaryJob job = {made_up[number]};
        TributaryPlan plan;
        TributaryTensor tensor;
        const char *json;
        float *values;
        TributaryExchange exchange = {made_up[number]};
        EXPECT(CLOSED, tributary_exchange_head(exchange, 200, NULL, 0));
        EXPECT(CLOSED, tributary_exchange_piece(exchange, NULL, 0));
        EXPECT(CLOSED, tributary_exchange_is_over(exchange));
        EXPECT(CLOSED, tributary_exchange_fail(exchange, "why"));
        EXPECT(CLOSED, tributary_exchange_end(exchange));
        EXPECT(CLOSED, tributary_next(none, 0, &job));
        EXPECT(CLOSED, tributary_pause(none));
        EXPECT(CLOSED, tributary_resume(none));
        EXPECT(CLOSED, tributary_conditions_changed(none));
        EXPECT(CLOSED, tributary_set_examples(none, 1));
        EXPECT(CLOSED, tributary_id(none, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_privacy_spent(none, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_privacy_lifetime(none, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_refusals(none, text, sizeof text, &length));
        TributaryModel model = {made_up[number]};
        TributaryMachine machine = {made_up[number]};
        TributaryOrigin origin;
        TributaryMetric metric;
        TributaryDataUse used;
        TributaryTodo todo;
        TributaryCircumstances now = {.elapsed_ms = 0, .device = GOOD, .examples = 1};
        TributaryPurpose purpose;
        const float *parameters;
        float scale;
        uint64_t until;
        EXPECT(CLOSED, tributary_model(none, "careless", &model));
        EXPECT(CLOSED, tributary_models(none, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_held_up(none, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_data_use(none, &used));
        EXPECT(CLOSED, tributary_model_origin(model, &origin));
        EXPECT(CLOSED, tributary_model_tensor(model, 0, &tensor));
        EXPECT(CLOSED, tributary_model_metric(model, 0, &metric));
        EXPECT(CLOSED, tributary_model_parameters(model, &parameters, &length));
        EXPECT(CLOSED, tributary_model_scores(model, NULL, 0, NULL, 0, &length));
        EXPECT(CLOSED, tributary_model_predict(model, NULL, NULL, 0, &length));
        EXPECT(CLOSED, tributary_model_free(model));
        EXPECT(CLOSED, tributary_machine_tick(machine, &now, &todo, &until));
        EXPECT(CLOSED, tributary_machine_perform(machine, NULL, NULL));
        EXPECT(CLOSED, tributary_machine_stop(machine));
        EXPECT(CLOSED, tributary_machine_id(machine, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_machine_held_up(machine, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_machine_privacy_spent(machine, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_machine_privacy_lifetime(machine, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_machine_refusals(machine, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_machine_data_use(machine, &used));
        EXPECT(CLOSED, tributary_machine_model(machine, "careless", &model));
        EXPECT(CLOSED, tributary_machine_models(machine, text, sizeof text, &length));
        EXPECT(CLOSED, tributary_machine_close(machine));
        EXPECT(CLOSED, tributary_stop(none));
        EXPECT(CLOSED, tributary_close(none, 0));
        EXPECT(CLOSED, tributary_job_plan(job, &plan));
        EXPECT(CLOSED, tributary_job_description(job, &json));
        EXPECT(CLOSED, tributary_job_tensor(job, 0, &tensor));
        EXPECT(CLOSED, tributary_job_parameters(job, &values, &length));
        EXPECT(CLOSED, tributary_job_check(job));
        EXPECT(CLOSED, tributary_job_purpose(job, &purpose));
        EXPECT(CLOSED, tributary_job_anchor(job, &parameters, &length));
        EXPECT(CLOSED, tributary_job_is_frozen(job, 0));
        EXPECT(CLOSED, tributary_job_correction(job, &parameters, &length));
        EXPECT(CLOSED, tributary_job_base(job, &parameters, &length, &scale));
        EXPECT(CLOSED, tributary_job_base_tensor(job, 0, &tensor));
        EXPECT(CLOSED, tributary_job_analysis(job, &json));
        EXPECT(CLOSED, tributary_job_give_rows(job, NULL, 0, 0, NULL));
        EXPECT(CLOSED, tributary_job_train_and_measure(job, NULL, NULL));
        EXPECT(CLOSED, tributary_job_train_columns(job, NULL, NULL));
        EXPECT(CLOSED, tributary_job_should_pause(job));
        EXPECT(CLOSED, tributary_job_checkpoint(job, NULL, 0, &length));
        EXPECT(CLOSED, tributary_job_save_checkpoint(job, NULL, 0));
        EXPECT(CLOSED, tributary_job_is_checkpoint_due(job));
        EXPECT(CLOSED, tributary_job_finish(job, NULL, 0, 1, NULL, 0));
        EXPECT(CLOSED, tributary_job_fail(job, "no"));
        EXPECT(CLOSED, tributary_job_refuse(job, "no"));
        EXPECT(CLOSED, tributary_job_free(job));
    }
    EXPECT(TOO_SMALL, tributary_last_error(text, 4, &length));
    CHECK(length > 4);
    EXPECT(ARGUMENT, tributary_last_error(NULL, 1000, NULL));
    CHECK(strlen(tributary_version()) > 0);
}

// ---- with a job

static TributaryJob next_job(TributaryParticipant participant) {
    TributaryJob job = {0};
    CHECK(has_job(participant, &job));
    return job;
}

static void every_wrong_answer(TributaryParticipant participant, TributaryJob job) {
    float *own, right[PARAMETERS] = {0}, wrong[PARAMETERS] = {0};
    size_t count;
    const char *json;
    TributaryTensor tensor;
    EXPECT(ARGUMENT, tributary_job_plan(job, NULL));
    EXPECT(ARGUMENT, tributary_job_description(job, NULL));
    EXPECT(ARGUMENT, tributary_job_tensor(job, 0, NULL));
    EXPECT(ARGUMENT, tributary_job_parameters(job, NULL, &count));
    EXPECT(ARGUMENT, tributary_job_parameters(job, &own, NULL));
    EXPECT(OK, tributary_job_description(job, &json));
    CHECK(strstr(json, "\"learning_rate\":0.05") != NULL);
    TributaryPlan plan;
    EXPECT(OK, tributary_job_plan(job, &plan));
    CHECK(plan.learning_rate == 0.05 && plan.weight_decay == 0.01 && plan.proximal_mu == 0.5 && plan.gradient_clip == 2);
    CHECK(plan.optimizer == TRIBUTARY_OPTIMIZER_ADAMW && plan.beta1 == 0.9 && plan.beta2 == 0.99 && plan.epsilon == 1e-8);
    CHECK(plan.momentum == 0 && plan.accumulate == 2 && plan.steps == 0);
    CHECK(plan.rate_changes == 1 && plan.budget_steps == 9 && plan.budget_ms == 20000);
    EXPECT(OK, tributary_job_tensor(job, 1, &tensor));
    CHECK(strcmp(tensor.name, "b") == 0 && tensor.dimensions == 1 && tensor.shape[0] == 2 && tensor.offset == 6);
    EXPECT(NOTHING, tributary_job_tensor(job, 2, &tensor));
    EXPECT(NOTHING, tributary_job_tensor(job, SIZE_MAX, &tensor));
    EXPECT(OK, tributary_job_parameters(job, &own, &count));
    CHECK(count == PARAMETERS);

    // A job is no participant, and the other way round.
    EXPECT(CLOSED, tributary_pause((TributaryParticipant){job.id}));
    EXPECT(CLOSED, tributary_job_check((TributaryJob){participant.id}));

    wrong[7] = NAN;
    EXPECT_WORDS(UPDATE, "7 parameters; the model has 8", tributary_job_finish(job, right, 7, 1, NULL, 0));
    EXPECT(UPDATE, tributary_job_finish(job, right, SIZE_MAX, 1, NULL, 0));
    EXPECT(UPDATE, tributary_job_finish(job, NULL, 8, 1, NULL, 0));
    EXPECT_WORDS(UPDATE, "tensor \"b\" has NaN at position 1", tributary_job_finish(job, wrong, 8, 1, NULL, 0));
    EXPECT_WORDS(UPDATE, "examples is 0", tributary_job_finish(job, right, 8, 0, NULL, 0));
    EXPECT_WORDS(ARGUMENT, "not aligned",
                 tributary_job_finish(job, (const float *)((uintptr_t)right + 1), 8, 1, NULL, 0));
    own[0] = INFINITY;
    EXPECT_WORDS(UPDATE, "tensor \"w\" has inf at position 0", tributary_job_finish(job, NULL, 0, 1, NULL, 0));
    EXPECT_WORDS(UPDATE, "tensor \"w\" has inf", tributary_job_finish(job, own, 8, 1, NULL, 0));
    own[0] = 0;
    TributaryMetric metrics[] = {{"accuracy", NAN, 1}, {NULL, 0.5, 1}, {"\xff", 0.5, 1}};
    EXPECT_WORDS(UPDATE, "metric \"accuracy\" is NaN", tributary_job_finish(job, right, 8, 1, metrics, 1));
    EXPECT_WORDS(ARGUMENT, "name is NULL", tributary_job_finish(job, right, 8, 1, metrics + 1, 1));
    EXPECT_WORDS(ARGUMENT, "not UTF-8", tributary_job_finish(job, right, 8, 1, metrics + 2, 1));
    EXPECT_WORDS(ARGUMENT, "metrics is NULL", tributary_job_finish(job, right, 8, 1, NULL, 1));
    EXPECT(ARGUMENT, tributary_job_finish(job, right, 8, 1, metrics, SIZE_MAX));
    // More than four times the largest model that the options allow, and a buffer that is too small.
    static uint8_t state[8000];
    size_t saved;
    EXPECT(NOTHING, tributary_job_checkpoint(job, state, sizeof state, &saved));
    EXPECT_WORDS(UPDATE, "its limit is 4000", tributary_job_save_checkpoint(job, state, sizeof state));
    EXPECT_WORDS(ARGUMENT, "state is NULL", tributary_job_save_checkpoint(job, NULL, 1));
    state[0] = 7;
    EXPECT(OK, tributary_job_save_checkpoint(job, state, 3));
    EXPECT(TOO_SMALL, tributary_job_checkpoint(job, NULL, 0, &saved));
    CHECK(saved == 3);
    EXPECT(ARGUMENT, tributary_job_checkpoint(job, NULL, 3, NULL));
    EXPECT(OK, tributary_job_checkpoint(job, state + 10, 3, NULL));
    CHECK(state[10] == 7 && state[11] == 0);
    EXPECT(NOTHING, tributary_job_should_pause(job));
    EXPECT(NOTHING, tributary_job_is_checkpoint_due(job));
    EXPECT_WORDS(ARGUMENT, "reason is NULL", tributary_job_fail(job, NULL));
    EXPECT(ARGUMENT, tributary_job_refuse(job, "\xff"));
    EXPECT(OK, tributary_job_check(job));
}

typedef struct {
    TributaryParticipant participant;
    TributaryJob job;
    TributaryCode code;
} Work;

static void *finish_in_thread(void *argument) {
    Work *work = argument;
    work->code = tributary_job_finish(work->job, NULL, 0, 5, NULL, 0);
    return NULL;
}

static void *wait_in_thread(void *argument) {
    Work *work = argument;
    do {
        work->code = tributary_next(work->participant, 600000, &work->job);
    } while (work->code == TRIBUTARY_CODE_NOTHING);
    return NULL;
}

static void *ask_in_thread(void *argument) {
    Work *work = argument;
    work->code = tributary_id(work->participant, (char[64]){0}, 64, NULL);
    return NULL;
}

static void *close_in_thread(void *argument) {
    Work *work = argument;
    work->code = tributary_close(work->participant, 10000);
    return NULL;
}

static TributaryCode in_thread(void *(*function)(void *), Work work) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, &work) == 0 && pthread_join(thread, NULL) == 0);
    return work.code;
}

// Whichever comes second is told so, by the job or by its handle.
static void two_threads_answer(TributaryParticipant participant, TributaryJob job) {
    Work works[2] = {{participant, job, TRIBUTARY_CODE_FAILED}, {participant, job, TRIBUTARY_CODE_FAILED}};
    pthread_t threads[2];
    for (int at = 0; at < 2; ++at) {
        CHECK(pthread_create(&threads[at], NULL, finish_in_thread, &works[at]) == 0);
    }
    for (int at = 0; at < 2; ++at) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
    int first = works[0].code == TRIBUTARY_CODE_OK ? 0 : 1;
    TributaryCode second = works[1 - first].code;
    CHECK(works[first].code == TRIBUTARY_CODE_OK && (second == TRIBUTARY_CODE_ANSWERED || second == TRIBUTARY_CODE_CLOSED));
}

static void a_forked_child_is_told(TributaryParticipant participant, TributaryJob job) {
    pid_t child = fork();
    if (child == 0) {
        char text[64];
        int is_told = tributary_job_finish(job, NULL, 0, 5, NULL, 0) == TRIBUTARY_CODE_OTHER_PROCESS &&
                      tributary_job_save_checkpoint(job, NULL, 0) == TRIBUTARY_CODE_OTHER_PROCESS &&
                      tributary_job_fail(job, "no") == TRIBUTARY_CODE_OTHER_PROCESS &&
                      tributary_job_free(job) == TRIBUTARY_CODE_OTHER_PROCESS &&
                      tributary_pause(participant) == TRIBUTARY_CODE_OTHER_PROCESS &&
                      tributary_next(participant, 1000, &job) == TRIBUTARY_CODE_OTHER_PROCESS &&
                      tributary_id(participant, text, sizeof text, NULL) == TRIBUTARY_CODE_OTHER_PROCESS;
        _exit(is_told ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_participant(const char *options) {
    static Told told; // Stays, to see what comes too late.
    TributaryCallbacks app = {.context = &told, .on_event = on_event, .device_state = device_state};
    TributaryParticipant participant, twice;
    EXPECT(OK, tributary_start(options, &app, &participant));
    memset(&app, 0, sizeof app); // The structure is not needed any more.
    atomic_store(&told.participant, participant.id);
    EXPECT_WORDS(JOURNAL, "in use", tributary_start(options, NULL, &twice));
    EXPECT(ARGUMENT, tributary_next(participant, 0, NULL));

    // Of the device nothing is known, which holds it up until the app tells.
    char held_up[128];
    TributaryCode code;
    while ((code = tributary_held_up(participant, held_up, sizeof held_up, NULL)) == TRIBUTARY_CODE_NOTHING) {
        usleep(1000);
    }
    EXPECT(OK, code);
    CHECK(strcmp(held_up, "charging: the device is not charging") == 0);
    EXPECT(ARGUMENT, tributary_data_use(participant, NULL));
    TributaryModel model;
    EXPECT(NOTHING, tributary_model(participant, "careless", &model));
    EXPECT_WORDS(ARGUMENT, "task is NULL", tributary_model(participant, NULL, &model));
    EXPECT_WORDS(ARGUMENT, "model is NULL", tributary_model(participant, "careless", NULL));
    EXPECT_WORDS(JOURNAL, "in use", tributary_model_load(options, NULL, "careless", &model));
    atomic_store(&told.is_good, 1);
    EXPECT(OK, tributary_conditions_changed(participant));

    TributaryJob job = next_job(participant);
    every_wrong_answer(participant, job);
    a_forked_child_is_told(participant, job);
    char id[64], small[8];
    size_t length;
    EXPECT(TOO_SMALL, tributary_id(participant, small, sizeof small, &length));
    CHECK(length == 37);
    EXPECT(OK, tributary_id(participant, id, sizeof id, NULL));
    CHECK(strlen(id) == 36);
    EXPECT(OK, tributary_privacy_lifetime(participant, (char[512]){0}, 512, NULL));
    two_threads_answer(participant, job);
    EXPECT(CLOSED, tributary_job_finish(job, NULL, 0, 5, NULL, 0));
    EXPECT(CLOSED, tributary_job_check(job));
    EXPECT(CLOSED, tributary_job_free(job));

    // The second round: a job with a checkpoint is taken back at a pause, and comes again.
    job = next_job(participant);
    EXPECT(OK, tributary_job_save_checkpoint(job, (const uint8_t *)"half", 4));
    EXPECT(OK, tributary_pause(participant));
    while (tributary_job_check(job) == TRIBUTARY_CODE_OK) {
        usleep(10000);
    }
    EXPECT(OVERDUE, tributary_job_finish(job, NULL, 0, 5, NULL, 0));
    EXPECT(CLOSED, tributary_job_save_checkpoint(job, (const uint8_t *)"more", 4));
    EXPECT(OK, tributary_resume(participant));
    job = next_job(participant);
    uint8_t half[4];
    EXPECT(OK, tributary_job_checkpoint(job, half, sizeof half, NULL));
    CHECK(memcmp(half, "half", 4) == 0);
    EXPECT(OK, in_thread(finish_in_thread, (Work){participant, job, TRIBUTARY_CODE_OK}));

    // The third, of which nothing is saved: nobody waits for it any more.
    job = next_job(participant);
    EXPECT(NOTHING, tributary_job_checkpoint(job, half, sizeof half, NULL));
    EXPECT(OK, tributary_pause(participant));
    while (tributary_job_check(job) == TRIBUTARY_CODE_OK) {
        usleep(10000);
    }
    EXPECT_WORDS(OVERDUE, "no longer waits", tributary_job_finish(job, NULL, 0, 5, NULL, 0));
    EXPECT(CLOSED, tributary_job_fail(job, "twice"));
    EXPECT(OK, tributary_resume(participant));

    // While it may not work, it is asked once more when the app says so.
    atomic_store(&told.is_good, 0);
    EXPECT(OK, tributary_conditions_changed(participant));
    int asked = atomic_load(&told.asked);
    EXPECT(OK, tributary_conditions_changed(participant));
    while (atomic_load(&told.asked) == asked) {
        usleep(1000);
    }

    // One thread waits for a job while another closes, and while a third does, too.
    Work waiting = {participant, {0}, TRIBUTARY_CODE_OK}, closing = waiting;
    pthread_t waiter, closer;
    CHECK(pthread_create(&waiter, NULL, wait_in_thread, &waiting) == 0);
    CHECK(pthread_create(&closer, NULL, close_in_thread, &closing) == 0);
    TributaryCode here = tributary_close(participant, 10000);
    CHECK(pthread_join(waiter, NULL) == 0 && pthread_join(closer, NULL) == 0);
    CHECK((here == TRIBUTARY_CODE_OK) != (closing.code == TRIBUTARY_CODE_OK));
    CHECK(here == TRIBUTARY_CODE_CLOSED || closing.code == TRIBUTARY_CODE_CLOSED);
    CHECK(waiting.code == TRIBUTARY_CODE_ENDED || waiting.code == TRIBUTARY_CODE_CLOSED);
    atomic_store(&told.is_over, 1);
    EXPECT(CLOSED, tributary_close(participant, 0));
    EXPECT(CLOSED, tributary_next(participant, 0, &job));
    CHECK(atomic_load(&told.events) > 0 && atomic_load(&told.refused) > 0);
}

// ---- a callback that does not return

// The first call, until there are a hundred steps.
static void block(atomic_int *steps) {
    if (atomic_fetch_add(steps, 1) == 0) {
        while (atomic_load(steps) < 100) {
            usleep(1000);
        }
    }
}

static void blocks_in_event(void *context, const char *name, const char *fields) {
    (void)name, (void)fields;
    block(context);
}

static int blocks_in_state(void *context, TributaryDeviceState *state) {
    block(context);
    *state = GOOD;
    return 0;
}

static void blocks_in_request(void *context, TributaryExchange exchange, const TributaryRequest *request) {
    (void)request;
    block(context);
    EXPECT(OK, tributary_exchange_fail(exchange, "it comes too late"));
}

static void fails_request(void *context, TributaryExchange exchange, const TributaryRequest *request) {
    (void)context, (void)request;
    EXPECT(OK, tributary_exchange_fail(exchange, "the radio is off"));
}

static int blocks_in_certificate(void *context, const char *certificate, const uint8_t *key, size_t key_bytes) {
    (void)certificate, (void)key, (void)key_bytes;
    block(context);
    return 0;
}

static int takes_certificate(void *context, const char *certificate, const uint8_t *key, size_t key_bytes) {
    (void)context, (void)certificate, (void)key, (void)key_bytes;
    return 0;
}

// `steps` stay: the thread is left behind.
static void a_callback_that_blocks(const char *options, TributaryCallbacks callbacks, atomic_int *steps) {
    callbacks.context = steps;
    TributaryParticipant participant;
    EXPECT(OK, tributary_start(options, &callbacks, &participant));
    while (atomic_load(steps) == 0) {
        usleep(1000);
    }
    // Neither who asks it something nor who waits for a job holds up who closes it.
    Work asking = {participant, {0}, TRIBUTARY_CODE_FAILED}, waiting = asking;
    pthread_t asker, waiter;
    CHECK(pthread_create(&asker, NULL, ask_in_thread, &asking) == 0);
    CHECK(pthread_create(&waiter, NULL, wait_in_thread, &waiting) == 0);
    usleep(50000);
    EXPECT(TIMEOUT, tributary_close(participant, 300));
    EXPECT(CLOSED, tributary_pause(participant));
    // Its journal is still in use, until the callback returns after all.
    TributaryParticipant again;
    EXPECT_WORDS(JOURNAL, "in use", tributary_start(options, NULL, &again));
    atomic_fetch_add(steps, 100);
    CHECK(pthread_join(asker, NULL) == 0 && pthread_join(waiter, NULL) == 0);
    CHECK(asking.code == TRIBUTARY_CODE_OK || asking.code == TRIBUTARY_CODE_CLOSED);
    CHECK(waiting.code == TRIBUTARY_CODE_CLOSED || waiting.code == TRIBUTARY_CODE_ENDED);
    TributaryCode code;
    while ((code = tributary_start(options, NULL, &again)) == TRIBUTARY_CODE_JOURNAL) {
        usleep(10000);
    }
    EXPECT(OK, code);
    EXPECT(OK, tributary_close(again, 10000));
}

// ---- the app's own key store

typedef struct {
    pthread_mutex_t lock; // Callbacks may come from any thread.
    char names[2][32];
    uint8_t secrets[2][64];
    size_t counts[2];
    int is_locked, saves, is_over;
} Secrets;

// Whether no callback may come any more.
static void set_over(Secrets *secrets, int is_over) {
    pthread_mutex_lock(&secrets->lock);
    secrets->is_over = is_over;
    pthread_mutex_unlock(&secrets->lock);
}

static ptrdiff_t load_secret(void *context, const char *name, uint8_t *buffer, size_t size) {
    Secrets *secrets = context;
    pthread_mutex_lock(&secrets->lock);
    CHECK(!secrets->is_over);
    ptrdiff_t found = secrets->is_locked ? -1 : 0;
    for (int at = 0; at < 2 && found == 0; ++at) {
        if (strcmp(secrets->names[at], name) == 0 && secrets->counts[at] <= size) {
            memcpy(buffer, secrets->secrets[at], secrets->counts[at]);
            found = (ptrdiff_t)secrets->counts[at];
        }
    }
    pthread_mutex_unlock(&secrets->lock);
    return found;
}

static int save_secret(void *context, const char *name, const uint8_t *bytes, size_t count) {
    Secrets *secrets = context;
    int at = strcmp(name, "journal-key") == 0 ? 0 : 1;
    CHECK(count <= sizeof secrets->secrets[at] && strlen(name) < sizeof secrets->names[at]);
    pthread_mutex_lock(&secrets->lock);
    CHECK(!secrets->is_over);
    strcpy(secrets->names[at], name);
    memcpy(secrets->secrets[at], bytes, count);
    secrets->counts[at] = count;
    secrets->saves += 1;
    pthread_mutex_unlock(&secrets->lock);
    return 0;
}

static void secrets_of_its_own(const char *options) {
    static Secrets secrets = {.lock = PTHREAD_MUTEX_INITIALIZER, .is_locked = 1};
    TributaryCallbacks app = {.context = &secrets, .load_secret = load_secret, .save_secret = save_secret};
    TributaryParticipant participant;
    EXPECT_WORDS(JOURNAL, "load_secret returned -1", tributary_start(options, &app, &participant));
    secrets.is_locked = 0;
    for (int time = 0; time < 2; ++time) {
        set_over(&secrets, 0);
        EXPECT(OK, tributary_start(options, &app, &participant));
        if (time == 0) {
            while (tributary_id(participant, (char[64]){0}, 64, NULL) == TRIBUTARY_CODE_NOTHING) {
                usleep(10000);
            }
        }
        EXPECT(OK, tributary_close(participant, 10000));
        // The library waited for its threads, which thread sanitizer cannot see: with the lock it can.
        pthread_mutex_lock(&secrets.lock);
        CHECK(secrets.counts[0] == 32 && secrets.counts[1] == 40);
        pthread_mutex_unlock(&secrets.lock);
        set_over(&secrets, 1);
    }
    set_over(&secrets, 0);
    // Another device's key, or none any more: the journal is not touched, by whoever opens it.
    TributaryMachine machine;
    TributaryModel model;
    secrets.secrets[0][5] ^= 1;
    EXPECT_WORDS(JOURNAL, "does not open", tributary_start(options, &app, &participant));
    EXPECT_WORDS(JOURNAL, "does not open", tributary_machine_open(options, &app, &machine));
    EXPECT_WORDS(JOURNAL, "does not open", tributary_model_load(options, &app, "absent", &model));
    int saves = secrets.saves;
    memset(secrets.names, 0, sizeof secrets.names);
    EXPECT_WORDS(JOURNAL, "key store has no key", tributary_start(options, &app, &participant));
    EXPECT_WORDS(JOURNAL, "key store has no key", tributary_machine_open(options, &app, &machine));
    EXPECT_WORDS(JOURNAL, "key store has no key", tributary_model_load(options, &app, "absent", &model));
    CHECK(secrets.saves == saves);
    set_over(&secrets, 1);
}

// ---- the app's own HTTP client

typedef struct {
    atomic_int begun, shown, is_over;
    _Atomic uint64_t open;
} Client;

static void begin_request(void *context, TributaryExchange exchange, const TributaryRequest *request) {
    Client *client = context;
    CHECK(request->method[0] != 0 && request->path[0] == '/' && request->header_count > 0 && !atomic_load(&client->is_over));
    CHECK(request->headers[0].name[0] != 0 && request->headers[0].value != NULL);
    TributaryHeader header = {.name = "content-type", .value = NULL};
    switch (atomic_fetch_add(&client->begun, 1)) {
    case 0:
        EXPECT_WORDS(ARGUMENT, "reason is NULL", tributary_exchange_fail(exchange, NULL));
        EXPECT(OK, tributary_exchange_fail(exchange, "the radio is off"));
        EXPECT(CLOSED, tributary_exchange_end(exchange));
        break;
    case 1:
        EXPECT_WORDS(ARGUMENT, "headers is NULL", tributary_exchange_head(exchange, 503, NULL, 1));
        EXPECT_WORDS(ARGUMENT, "value is NULL", tributary_exchange_head(exchange, 503, &header, 1));
        EXPECT_WORDS(ARGUMENT, "bytes is NULL", tributary_exchange_piece(exchange, NULL, 4));
        header.value = "text/plain";
        EXPECT(OK, tributary_exchange_head(exchange, 503, &header, 1));
        EXPECT(OK, tributary_exchange_piece(exchange, (const uint8_t *)"busy", 4));
        EXPECT(OK, tributary_exchange_end(exchange));
        break;
    case 2:
        // What no head is is no answer.
        EXPECT(NOTHING, tributary_exchange_head(exchange, 7, NULL, 0));
        EXPECT(OK, tributary_exchange_end(exchange));
        break;
    case 3:
        atomic_store(&client->open, exchange.id);
        break;
    default:
        EXPECT(OK, tributary_exchange_fail(exchange, "the radio is off"));
    }
}

static int show_certificate(void *context, const char *certificate, const uint8_t *key, size_t key_bytes) {
    Client *client = context;
    CHECK(strstr(certificate, "BEGIN CERTIFICATE") != NULL && key != NULL && key_bytes > 32 && !atomic_load(&client->is_over));
    atomic_fetch_add(&client->shown, 1);
    return 0;
}

static void a_client_of_its_own(const char *options) {
    static Client client;
    TributaryCallbacks app = {.context = &client, .begin_request = begin_request, .show_certificate = show_certificate};
    TributaryParticipant participant;
    EXPECT(OK, tributary_start(options, &app, &participant));
    TributaryExchange open = {0};
    while ((open.id = atomic_load(&client.open)) == 0) {
        usleep(10000);
    }
    CHECK(atomic_load(&client.shown) > 0);
    EXPECT(NOTHING, tributary_exchange_is_over(open));
    EXPECT(OK, tributary_close(participant, 10000));
    atomic_store(&client.is_over, 1);
    // Nobody waits for the answer any more; its handle is the app's until it has said so.
    EXPECT(OK, tributary_exchange_is_over(open));
    EXPECT(NOTHING, tributary_exchange_piece(open, (const uint8_t *)"late", 4));
    EXPECT(OK, tributary_exchange_end(open));
    EXPECT(CLOSED, tributary_exchange_is_over(open));
}

// ---- a journal that was changed

static void leaves_a_journal(const char *options) {
    TributaryParticipant participant;
    EXPECT(OK, tributary_start(options, NULL, &participant));
    while (tributary_id(participant, (char[64]){0}, 64, NULL) == TRIBUTARY_CODE_NOTHING) {
        usleep(10000);
    }
    EXPECT(OK, tributary_close(participant, 10000));
}

static void a_damaged_journal(const char *options, const char *words) {
    TributaryParticipant participant;
    TributaryMachine machine;
    TributaryModel model;
    EXPECT_WORDS(JOURNAL, words, tributary_start(options, NULL, &participant));
    EXPECT_WORDS(JOURNAL, words, tributary_machine_open(options, NULL, &machine));
    EXPECT_WORDS(JOURNAL, words, tributary_model_load(options, NULL, "absent", &model));
}

// What it sends when it enrols is more than a byte: then it rests, whatever the device is like.
static void a_byte_a_day(const char *options) {
    TributaryParticipant participant;
    TributaryDataUse used;
    TributaryCode code;
    char held_up[256];
    EXPECT(OK, tributary_start(options, NULL, &participant));
    while ((code = tributary_held_up(participant, held_up, sizeof held_up, NULL)) == TRIBUTARY_CODE_NOTHING) {
        usleep(10000);
    }
    EXPECT(OK, code);
    CHECK(strncmp(held_up, "data_cap: ", 10) == 0);
    EXPECT(OK, tributary_data_use(participant, &used));
    CHECK(used.sent_today > 0 && used.sent >= used.sent_today && used.received >= used.received_today);
    TributaryJob job;
    EXPECT(NOTHING, tributary_next(participant, 0, &job));
    EXPECT(OK, tributary_close(participant, 10000));
}

static void holds_its_journal(const char *options) {
    TributaryParticipant participant;
    EXPECT(OK, tributary_start(options, NULL, &participant));
    puts("started");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    EXPECT(OK, tributary_close(participant, 10000));
}

// What it does beside misuse, in a process of its own.
static int is_done(int count, char **arguments) {
    char *own = read_text(arguments[1]);
    if (count == 4) {
        a_damaged_journal(own, arguments[3]);
    } else if (strcmp(arguments[2], "journal") == 0) {
        leaves_a_journal(own);
    } else if (strcmp(arguments[2], "holds") == 0) {
        holds_its_journal(own);
    } else if (strcmp(arguments[2], "capped") == 0) {
        a_byte_a_day(own);
    } else {
        free(own);
        return 0;
    }
    free(own);
    return 1;
}

int main(int count, char **arguments) {
    CHECK(count == 3 || count == 4);
    if (is_done(count, arguments)) {
        return 0;
    }
    char *options = read_text(arguments[1]), *other = read_text(arguments[2]);
    nothing_is_there(options);
    a_participant(options);
    secrets_of_its_own(other);
    static atomic_int in_event, in_state, in_request, in_certificate;
    a_callback_that_blocks(options, (TributaryCallbacks){.on_event = blocks_in_event}, &in_event);
    a_callback_that_blocks(options, (TributaryCallbacks){.device_state = blocks_in_state}, &in_state);
    TributaryCallbacks client = {.begin_request = blocks_in_request, .show_certificate = takes_certificate};
    a_callback_that_blocks(options, client, &in_request);
    client = (TributaryCallbacks){.begin_request = fails_request, .show_certificate = blocks_in_certificate};
    a_callback_that_blocks(options, client, &in_certificate);
    a_client_of_its_own(options);
    free(options);
    free(other);
    puts("misuse: every call said what it must");
    return 0;
}
