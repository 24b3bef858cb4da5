// A device with a model of its own beside the shared one, in a task personalized by ditto: each round is two jobs.
//
//     personal OPTIONS.json
//
// The task's model is `linear` with 4 inputs and 2 classes, it has two rounds, and OPTIONS.json says `trains_within`. The library trains the
// shared model, and the device's own one in the second round; in the first the app moves its own one itself.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "tributary.h"

enum { ROWS = 64, WIDTH = 4, PARAMETERS = 10 };

static float features[ROWS * WIDTH], own[PARAMETERS];
static uint32_t labels[ROWS];
// The last quarter is held out.
static const TributaryRows TRAINING = {features, labels, ROWS * 3 / 4, WIDTH};
static const TributaryRows HELD_OUT = {features + ROWS * 3 / 4 * WIDTH, labels + ROWS * 3 / 4, ROWS / 4, WIDTH};

// What no job of this task has, and what is no place for an answer.
static void nothing_else(TributaryJob job) {
    const float *values;
    size_t count;
    float scale;
    TributaryTensor tensor;
    EXPECT(NOTHING, tributary_job_correction(job, &values, &count));
    EXPECT(NOTHING, tributary_job_base(job, &values, &count, &scale));
    EXPECT(NOTHING, tributary_job_base_tensor(job, 0, &tensor));
    EXPECT(NOTHING, tributary_job_is_frozen(job, 0));
    EXPECT(NOTHING, tributary_job_is_frozen(job, SIZE_MAX));
    EXPECT_WORDS(ARGUMENT, "values is NULL", tributary_job_anchor(job, NULL, &count));
    EXPECT_WORDS(ARGUMENT, "count is NULL", tributary_job_correction(job, &values, NULL));
    EXPECT_WORDS(ARGUMENT, "scale is NULL", tributary_job_base(job, &values, &count, NULL));
    EXPECT_WORDS(ARGUMENT, "purpose is NULL", tributary_job_purpose(job, NULL));
}

static void train_shared(TributaryJob job) {
    const float *values;
    size_t count;
    EXPECT(NOTHING, tributary_job_anchor(job, &values, &count));
    TributaryRows wide = {features, labels, ROWS / 2, WIDTH * 2};
    EXPECT_WORDS(ARGUMENT, "rows is NULL", tributary_job_train_and_measure(job, NULL, NULL));
    EXPECT_WORDS(UPDATE, "takes 4", tributary_job_train_and_measure(job, &TRAINING, &wide));
    EXPECT(OK, tributary_job_train_and_measure(job, &TRAINING, &HELD_OUT));
}

static void train_own(TributaryJob job, unsigned round) {
    const float *anchor;
    float *values;
    size_t count, anchored;
    const char *json;
    EXPECT(OK, tributary_job_description(job, &json));
    CHECK(strstr(json, "\"purpose\":\"own\"") != NULL);
    EXPECT(OK, tributary_job_parameters(job, &values, &count));
    EXPECT(OK, tributary_job_anchor(job, &anchor, &anchored));
    CHECK(count == PARAMETERS && anchored == PARAMETERS);
    if (round == 2) {
        // It goes on from where the app left it, and the library trains it towards the received model.
        CHECK(memcmp(values, own, sizeof own) == 0 && memcmp(values, anchor, sizeof own) != 0);
        EXPECT(OK, tributary_job_train_and_measure(job, &TRAINING, NULL));
        return;
    }
    CHECK(memcmp(values, anchor, sizeof own) == 0);
    for (size_t index = 0; index < count; ++index) {
        own[index] = values[index] += 1;
    }
    TributaryMetric measured = {.name = "personal_loss", .value = 0.5, .count = ROWS};
    EXPECT(OK, tributary_job_finish(job, NULL, 0, ROWS, &measured, 1));
}

int main(int count, char **arguments) {
    static char options[1 << 16];
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL || fread(options, 1, sizeof options - 1, file) == 0) {
        return 2;
    }
    fclose(file);
    for (int row = 0; row < ROWS; ++row) {
        labels[row] = (uint32_t)row % 2;
        for (int column = 0; column < WIDTH; ++column) {
            features[row * WIDTH + column] = (float)((row * 7 + column * 3) % 10) / 10 + (column % 2 == row % 2 ? 1 : 0);
        }
    }
    TributaryParticipant participant;
    EXPECT(OK, tributary_start(options, NULL, &participant));
    unsigned jobs = 0;
    TributaryJob job;
    while (has_job(participant, &job)) {
        TributaryPurpose purpose;
        TributaryPlan plan;
        EXPECT(OK, tributary_job_purpose(job, &purpose));
        EXPECT(OK, tributary_job_plan(job, &plan));
        CHECK(plan.round == 1 + jobs / 2);
        CHECK(purpose == (jobs % 2 == 0 ? TRIBUTARY_PURPOSE_SHARED : TRIBUTARY_PURPOSE_OWN));
        CHECK(plan.proximal_mu == (jobs % 2 == 0 ? 0 : 0.5));
        nothing_else(job);
        if (purpose == TRIBUTARY_PURPOSE_SHARED) {
            train_shared(job);
        } else {
            train_own(job, plan.round);
        }
        EXPECT(CLOSED, tributary_job_purpose(job, &purpose));
        ++jobs;
    }
    CHECK(jobs == 4);
    TributaryModel model;
    TributaryOrigin origin;
    const float *values;
    size_t length;
    EXPECT(OK, tributary_model(participant, "personal", &model));
    EXPECT(OK, tributary_model_origin(model, &origin));
    EXPECT(OK, tributary_model_parameters(model, &values, &length));
    CHECK(origin.round == 2 && origin.sha256 == NULL && length == PARAMETERS && memcmp(values, own, sizeof own) != 0);
    EXPECT(OK, tributary_model_free(model));
    EXPECT(OK, tributary_close(participant, 10000));
    printf("personal: two rounds of two jobs each, and the own model of round %u\n", 2u);
    return 0;
}
