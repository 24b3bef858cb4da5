// An app that drives a participant itself, on its own thread.
//
//     machine OPTIONS.json [sliced]
//
// OPTIONS.json is of a participant of a task with a cohort of one and two rounds, whose `device_conditions` are the usual ones. With `sliced` the
// task has one round of a ready model, `linear` with 4 inputs and 2 classes, which takes longer to train than a slice.

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"
#include "tributary.h"

typedef struct {
    TributaryMachine machine;
    TributaryJob job;
    int events, trained, paused;
} App;

static const TributaryDeviceState GOOD = {
    .charging = 1, .unmetered = 1, .idle = 1, .battery_percent = TRIBUTARY_UNKNOWN, .thermal = 0};

static uint64_t elapsed_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int threads(void) {
    DIR *folder = opendir("/proc/self/task");
    CHECK(folder != NULL);
    int count = 0;
    while (readdir(folder) != NULL) {
        ++count;
    }
    closedir(folder);
    return count;
}

// It belongs to the process that opened it.
static void a_forked_child_is_told(TributaryMachine machine) {
    pid_t child = fork();
    if (child == 0) {
        TributaryCircumstances now = {.examples = TRIBUTARY_UNKNOWN};
        TributaryTodo todo;
        uint64_t until;
        char text[64];
        int is_told = tributary_machine_tick(machine, &now, &todo, &until) == TRIBUTARY_CODE_OTHER_PROCESS &&
                      tributary_machine_id(machine, text, sizeof text, NULL) == TRIBUTARY_CODE_OTHER_PROCESS &&
                      tributary_machine_stop(machine) == TRIBUTARY_CODE_OTHER_PROCESS;
        _exit(is_told ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void on_event(void *context, const char *name, const char *fields) {
    App *app = context;
    CHECK(name[0] != 0 && fields[0] == '{');
    ++app->events;
}

static void train(void *context, TributaryJob job);

static int tells(void *context, TributaryDeviceState *state) {
    (void)context, (void)state;
    return 0;
}

// While one thread performs the training, another one is told that it is busy, and answers the job.
static void *tick_and_answer(void *context) {
    App *app = context;
    TributaryCircumstances now = {.elapsed_ms = elapsed_ms(), .device = GOOD, .examples = 10};
    TributaryTodo todo;
    uint64_t until;
    EXPECT(OK, tributary_machine_tick(app->machine, &now, &todo, &until));
    CHECK(todo == TRIBUTARY_TODO_BUSY);
    EXPECT(NOTHING, tributary_machine_perform(app->machine, train, app));
    EXPECT(OK, tributary_job_finish(app->job, NULL, 0, 10, NULL, 0));
    return NULL;
}

// The first job is done in two slices: the app saves what it has, and rests when it should.
static void train(void *context, TributaryJob job) {
    App *app = context;
    uint8_t state[1];
    EXPECT_WORDS(IN_CALLBACK, "another thread", tributary_machine_perform(app->machine, train, app));
    TributaryCode code = tributary_job_checkpoint(job, state, sizeof state, NULL);
    if (app->trained == 0 && code == TRIBUTARY_CODE_NOTHING) {
        EXPECT(OK, tributary_job_save_checkpoint(job, (const uint8_t *)"x", 1));
        while (tributary_job_should_pause(job) == TRIBUTARY_CODE_NOTHING) {
            usleep(1000);
        }
        ++app->paused;
        return;
    }
    CHECK(app->trained > 0 || (code == TRIBUTARY_CODE_OK && state[0] == 'x'));
    float *values;
    size_t count;
    EXPECT(OK, tributary_job_parameters(job, &values, &count));
    for (size_t index = 0; index < count; ++index) {
        values[index] += 1;
    }
    if (app->trained == 0) {
        EXPECT(OK, tributary_job_finish(job, NULL, 0, 10, NULL, 0));
    } else {
        pthread_t other;
        app->job = job;
        CHECK(pthread_create(&other, NULL, tick_and_answer, app) == 0 && pthread_join(other, NULL) == 0);
        EXPECT(CLOSED, tributary_job_finish(job, NULL, 0, 10, NULL, 0));
    }
    ++app->trained;
}

// ---- a ready model

enum { ROWS = 2000, WIDTH = 4 };

typedef struct {
    float features[ROWS * WIDTH];
    uint32_t labels[ROWS];
    int calls, paused;
} Ready;

// A pause of `tributary_job_train` is no answer and no failure: this is called again, and goes on.
static void train_ready(void *context, TributaryJob job) {
    Ready *ready = context;
    TributaryCode code = tributary_job_checkpoint(job, NULL, 0, NULL);
    CHECK(code == (ready->calls == 0 ? TRIBUTARY_CODE_NOTHING : TRIBUTARY_CODE_TOO_SMALL));
    ++ready->calls;
    code = tributary_job_train(job, ready->features, ready->labels, ROWS, WIDTH);
    CHECK(code == TRIBUTARY_CODE_OK || code == TRIBUTARY_CODE_OVERDUE);
    ready->paused += code == TRIBUTARY_CODE_OVERDUE;
    EXPECT(CLOSED, tributary_job_check(job));
}

static void sliced(const char *options) {
    static Ready ready;
    for (int row = 0; row < ROWS; ++row) {
        ready.labels[row] = (uint32_t)row % 2;
        for (int column = 0; column < WIDTH; ++column) {
            ready.features[row * WIDTH + column] = (float)((row * 7 + column * 3) % 10) / 10 + (column % 2 == row % 2 ? 1 : 0);
        }
    }
    TributaryMachine machine;
    TributaryTodo todo;
    uint64_t until;
    TributaryCode code;
    EXPECT(OK, tributary_machine_open(options, NULL, &machine));
    for (;;) {
        TributaryCircumstances now = {.elapsed_ms = elapsed_ms(), .device = GOOD, .examples = ROWS};
        code = tributary_machine_tick(machine, &now, &todo, &until);
        if (code == TRIBUTARY_CODE_ENDED) {
            break;
        }
        CHECK(code == TRIBUTARY_CODE_OK && todo != TRIBUTARY_TODO_BUSY);
        if (todo == TRIBUTARY_TODO_WAIT_UNTIL) {
            usleep(20000);
        } else {
            EXPECT(OK, tributary_machine_perform(machine, train_ready, &ready));
        }
    }
    CHECK(ready.paused > 0 && ready.calls == ready.paused + 1);
    EXPECT(OK, tributary_machine_close(machine));
    printf("machine: a ready model was trained in %d slices\n", ready.calls);
}

int main(int count, char **arguments) {
    static char options[1 << 16];
    FILE *file = count == 2 || count == 3 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL || fread(options, 1, sizeof options - 1, file) == 0) {
        return 2;
    }
    fclose(file);
    if (count == 3) {
        sliced(options);
        return 0;
    }
    App app = {.events = 0};
    TributaryCallbacks callbacks = {.context = &app, .on_event = on_event, .device_state = tells};
    EXPECT_WORDS(CONFIGURATION, "come with each tick", tributary_machine_open(options, &callbacks, &app.machine));
    callbacks.device_state = NULL;
    int before = threads();
    EXPECT(OK, tributary_machine_open(options, &callbacks, &app.machine));
    CHECK(threads() == before);
    a_forked_child_is_told(app.machine);
    TributaryMachine twice;
    EXPECT_WORDS(JOURNAL, "in use", tributary_machine_open(options, NULL, &twice));
    EXPECT(NOTHING, tributary_machine_perform(app.machine, train, &app));
    EXPECT_WORDS(ARGUMENT, "train is NULL", tributary_machine_perform(app.machine, NULL, &app));

    TributaryDeviceState used = GOOD;
    used.idle = 0;
    TributaryTodo todo;
    uint64_t until;
    char text[128];
    int rested = 0, performed[4] = {0};
    EXPECT_WORDS(ARGUMENT, "circumstances is NULL", tributary_machine_tick(app.machine, NULL, &todo, &until));
    for (;;) {
        // While somebody uses the device nothing is done but to write what is made.
        TributaryCircumstances now = {.elapsed_ms = elapsed_ms(), .device = rested < 3 ? used : GOOD, .examples = 10};
        before = threads();
        TributaryCode code = tributary_machine_tick(app.machine, &now, &todo, &until);
        // A helper of an earlier request may end at any time.
        CHECK(threads() <= before);
        if (code == TRIBUTARY_CODE_ENDED) {
            break;
        }
        CHECK(code == TRIBUTARY_CODE_OK && todo != TRIBUTARY_TODO_BUSY);
        if (todo == TRIBUTARY_TODO_WAIT_UNTIL) {
            CHECK(until >= now.elapsed_ms);
            if (rested < 3) {
                EXPECT(OK, tributary_machine_held_up(app.machine, text, sizeof text, NULL));
                CHECK(strcmp(text, "idle: the device is in use") == 0);
                ++rested;
            } else {
                usleep(20000); // Earlier than it says does no harm.
            }
            continue;
        }
        CHECK(rested == 3 || todo == TRIBUTARY_TODO_JOURNAL);
        ++performed[todo];
        EXPECT(OK, tributary_machine_perform(app.machine, train, &app));
    }
    for (int kind = TRIBUTARY_TODO_SEND; kind <= TRIBUTARY_TODO_JOURNAL; ++kind) {
        CHECK(performed[kind] > 0);
    }
    CHECK(app.trained == 2 && app.paused == 1 && app.events > 5);
    EXPECT(OK, tributary_machine_id(app.machine, text, sizeof text, NULL));
    CHECK(strlen(text) == 36);
    TributaryModel model;
    TributaryOrigin origin;
    EXPECT(OK, tributary_machine_model(app.machine, "driven", &model));
    EXPECT(OK, tributary_model_origin(model, &origin));
    CHECK(origin.version == 2 && origin.round == 0 && origin.architecture == NULL);
    EXPECT(OK, tributary_model_free(model));
    EXPECT(OK, tributary_machine_models(app.machine, text, sizeof text, NULL));
    CHECK(strcmp(text, "[\"driven\"]") == 0);
    EXPECT(OK, tributary_machine_refusals(app.machine, text, sizeof text, NULL));
    CHECK(strcmp(text, "[]") == 0);
    EXPECT(OK, tributary_machine_privacy_spent(app.machine, text, sizeof text, NULL));
    CHECK(strcmp(text, "[]") == 0);
    EXPECT(OK, tributary_machine_privacy_lifetime(app.machine, text, sizeof text, NULL));
    CHECK(strstr(text, "\"limit\":10.0") != NULL);
    TributaryDataUse sent;
    EXPECT(ARGUMENT, tributary_machine_data_use(app.machine, NULL));
    EXPECT(OK, tributary_machine_data_use(app.machine, &sent));
    CHECK(sent.sent > 500 && sent.received > 500);
    EXPECT(OK, tributary_machine_stop(app.machine));
    EXPECT(OK, tributary_machine_close(app.machine));
    EXPECT(CLOSED, tributary_machine_close(app.machine));
    printf("machine: driven by hand, %d requests and %d writes in two rounds\n", performed[TRIBUTARY_TODO_SEND], performed[TRIBUTARY_TODO_JOURNAL]);
    return 0;
}
