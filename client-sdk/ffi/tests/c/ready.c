// An app without a training function: the library trains the task's ready model on its rows, and the app uses the model.
//
//     ready OPTIONS.json [offline | mlp | cnn | graph]
//
// The task's model is `linear` with 4 inputs and 2 classes, and the options have `"required": false`. Prints what the model says of some rows;
// with `offline` it only does that, while the coordinator is gone: by a participant, and without one. With the name of another model it trains
// and uses that in the task of this name: `mlp` takes 4 inputs, `cnn` images of 4 by 4, and `graph` the columns `numbers` (4 floats),
// `kind` (an integer below 5) and `known` (a truth value), with a number as target.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "tributary.h"

enum { ROWS = 64, WIDTH = 4, PIXELS = 16 };

// What the model says of the first two rows.
typedef struct {
    unsigned version, right;
    float scores[4];
} Used;

static Used use(TributaryModel model, const float *features) {
    TributaryOrigin origin;
    TributaryTensor tensor;
    TributaryMetric metric;
    const float *values;
    size_t parameters, length;
    Used used;
    EXPECT(OK, tributary_model_origin(model, &origin));
    EXPECT(OK, tributary_model_parameters(model, &values, &parameters));
    EXPECT(OK, tributary_model_tensor(model, 0, &tensor));
    EXPECT(NOTHING, tributary_model_tensor(model, 2, &tensor));
    EXPECT(NOTHING, tributary_model_metric(model, 0, &metric));
    EXPECT(TOO_SMALL, tributary_model_scores(model, features, 2 * WIDTH, used.scores, 3, &length));
    EXPECT(OK, tributary_model_scores(model, features, 2 * WIDTH, used.scores, 4, &length));
    EXPECT(ARGUMENT, tributary_model_scores(model, features, 3, used.scores, 4, NULL));
    used.version = origin.version;
    used.right = (used.scores[0] > used.scores[1]) + (used.scores[3] > used.scores[2]);
    if (length != 4 || parameters != 10 || tensor.dimensions != 2 || origin.round != 0 || strlen(origin.sha256) != 64 ||
        strstr(origin.architecture, "linear") == NULL) {
        fprintf(stderr, "another model than the task's: %zu parameters, %zu scores\n", parameters, length);
        exit(1);
    }
    EXPECT(OK, tributary_model_free(model));
    EXPECT(CLOSED, tributary_model_origin(model, &origin));
    return used;
}

static void print(Used used) {
    printf("version %u, scores %g %g, %g %g, right %u of 2\n", used.version, used.scores[0], used.scores[1], used.scores[2],
           used.scores[3], used.right);
}

// Unless the app says otherwise it refuses rounds in the clear, and remembers why.
static void refuse_clear(char *options) {
    static const char lax[] = "\"required\": false", strict[] = "\"required\": true ";
    char *place = strstr(options, lax), said[8192];
    if (place == NULL) {
        fprintf(stderr, "the options have no %s\n", lax);
        exit(1);
    }
    memcpy(place, strict, strlen(strict));
    TributaryParticipant participant;
    EXPECT(OK, tributary_start(options, NULL, &participant));
    do {
        usleep(10000);
        EXPECT(OK, tributary_refusals(participant, said, sizeof said, NULL));
    } while (strcmp(said, "[]") == 0);
    if (strstr(said, "without secure aggregation") == NULL || strstr(said, "\"round\":1") == NULL || strstr(said, "\"times\":") == NULL) {
        fprintf(stderr, "refused: %s\n", said);
        exit(1);
    }
    EXPECT(TOO_SMALL, tributary_refusals(participant, said, 2, NULL));
    EXPECT(OK, tributary_close(participant, 10000));
    memcpy(place, lax, strlen(lax));
}

static void another_kind(const char *options, const char *kind, const uint32_t *labels) {
    static float features[ROWS * PIXELS];
    size_t width = strcmp(kind, "cnn") == 0 ? PIXELS : WIDTH, length, parameters;
    for (size_t at = 0; at < ROWS * width; ++at) {
        features[at] = (float)(at * 7 % 10) / 10 + (at % 2 == at / width % 2 ? 1 : 0);
    }
    TributaryParticipant participant;
    TributaryModel model;
    TributaryOrigin origin;
    TributaryJob job;
    const float *values;
    float scores[4];
    int rounds = 0;
    EXPECT(OK, tributary_start(options, NULL, &participant));
    while (has_job(participant, &job)) {
        EXPECT(UPDATE, tributary_job_train(job, features, labels, ROWS / 2, 2 * width));
        EXPECT(OK, tributary_job_train(job, features, labels, ROWS, width));
        ++rounds;
    }
    EXPECT(OK, tributary_model(participant, kind, &model));
    EXPECT(OK, tributary_model_origin(model, &origin));
    EXPECT(OK, tributary_model_parameters(model, &values, &parameters));
    EXPECT(OK, tributary_model_scores(model, features, 2 * width, scores, 4, &length));
    int is_finite = length == 4 && isfinite(scores[0]) && isfinite(scores[1]) && isfinite(scores[2]) && isfinite(scores[3]);
    if (rounds != 1 || origin.version != 1 || strstr(origin.architecture, kind) == NULL || !is_finite) {
        fprintf(stderr, "%s: %d rounds, version %u, %zu scores\n", kind, rounds, (unsigned)origin.version, length);
        exit(1);
    }
    printf("%s: %zu parameters, trained and used\n", kind, parameters);
    EXPECT(OK, tributary_model_free(model));
    EXPECT(OK, tributary_close(participant, 10000));
}

// Mean squared error of the graph's predictions.
static double squared_error(TributaryParticipant participant, const TributaryExamples *examples) {
    TributaryModel model;
    float predicted[ROWS];
    size_t length;
    double sum = 0;
    EXPECT(OK, tributary_model(participant, "graph", &model));
    EXPECT(TOO_SMALL, tributary_model_predict(model, examples, predicted, ROWS - 1, &length));
    EXPECT(OK, tributary_model_predict(model, examples, predicted, ROWS, &length));
    CHECK(length == ROWS);
    for (int row = 0; row < ROWS; ++row) {
        double difference = predicted[row] - examples->numbers[row];
        sum += difference * difference;
        CHECK(row % 4 != 1 || predicted[row] == 0);
    }
    TributaryExamples less = *examples;
    less.column_count = 1;
    EXPECT_WORDS(ARGUMENT, "`numbers`, which is missing", tributary_model_predict(model, &less, predicted, ROWS, NULL));
    EXPECT(ARGUMENT, tributary_model_predict(model, NULL, predicted, ROWS, NULL));
    EXPECT(OK, tributary_model_free(model));
    EXPECT(CLOSED, tributary_model_predict(model, examples, predicted, ROWS, NULL));
    return sum / ROWS;
}

// Trains a graph with three inputs by their names, in two rounds.
static void graph(const char *options) {
    static float numbers[ROWS * WIDTH], targets[ROWS];
    static int64_t kinds[ROWS], outside[ROWS];
    static uint8_t known[ROWS], no_truths[ROWS];
    for (int row = 0; row < ROWS; ++row) {
        kinds[row] = row % 5;
        outside[row] = row == 3 ? 5 : 0;
        known[row] = row % 4 != 1;
        no_truths[row] = row == 3 ? 7 : 0;
        targets[row] = (float)(row * 4 % 7) / 7 - (float)(row % 5);
        for (int column = 0; column < WIDTH; ++column) {
            numbers[row * WIDTH + column] = (float)((row * WIDTH + column) % 7) / 7;
        }
    }
    TributaryColumn columns[] = {{.name = "kind", .integers = kinds, .count = ROWS},
                                 {.name = "numbers", .floats = numbers, .count = ROWS * WIDTH},
                                 {.name = "known", .truths = known, .count = ROWS},
                                 {.name = "kind", .integers = kinds, .count = ROWS}};
    TributaryExamples examples = {
        .columns = columns, .column_count = 3, .numbers = targets, .target_count = ROWS, .examples = ROWS, .length = 1};
    TributaryParticipant participant;
    TributaryJob job;
    int rounds = 0;
    double before = 0, after;
    EXPECT(OK, tributary_start(options, NULL, &participant));
    for (; has_job(participant, &job); ++rounds) {
        TributaryExamples wrong = examples;
        wrong.column_count = 4;
        EXPECT_WORDS(UPDATE, "the input `kind` once, not twice", tributary_job_train_columns(job, &wrong, NULL));
        wrong.column_count = 1;
        EXPECT_WORDS(UPDATE, "`numbers` (floats [batch, 4]), `kind` (integers [batch]), `known` (truth values [batch])",
                     tributary_job_train_columns(job, &wrong, NULL));
        wrong.column_count = 2;
        EXPECT_WORDS(UPDATE, "`known`, which is missing", tributary_job_train_columns(job, &wrong, NULL));
        columns[0].integers = outside;
        EXPECT_WORDS(UPDATE, "integers from 0 to 4 as its input `kind`, not 5 (example 3)",
                     tributary_job_train_columns(job, &examples, NULL));
        columns[0].integers = NULL;
        EXPECT_WORDS(ARGUMENT, "one of floats, integers and truths", tributary_job_train_columns(job, &examples, NULL));
        columns[0].integers = kinds;
        columns[2].truths = no_truths;
        EXPECT_WORDS(ARGUMENT, "column `known`: byte 3 of its truth values is 7", tributary_job_train_columns(job, &examples, NULL));
        columns[2].truths = known;
        wrong = examples;
        wrong.numbers = NULL;
        EXPECT_WORDS(ARGUMENT, "either classes or numbers", tributary_job_train_columns(job, &wrong, NULL));
        EXPECT_WORDS(ARGUMENT, "examples is NULL", tributary_job_train_columns(job, NULL, NULL));
        if (rounds > 0) {
            before = squared_error(participant, &examples);
        }
        EXPECT(OK, tributary_job_train_columns(job, &examples, &examples));
        EXPECT(CLOSED, tributary_job_train_columns(job, &examples, NULL));
    }
    after = squared_error(participant, &examples);
    printf("graph: squared error %g, then %g\n", before, after);
    CHECK(rounds == 2 && after < before);
    EXPECT(OK, tributary_close(participant, 10000));
}

int main(int count, char **arguments) {
    static char options[1 << 16];
    FILE *file = count >= 2 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL || fread(options, 1, sizeof options - 1, file) == 0) {
        return 2;
    }
    fclose(file);
    static float features[ROWS * WIDTH];
    static uint32_t labels[ROWS], wrong[ROWS];
    for (int row = 0; row < ROWS; ++row) {
        labels[row] = (uint32_t)row % 2;
        wrong[row] = 7;
        for (int column = 0; column < WIDTH; ++column) {
            features[row * WIDTH + column] = (float)((row * 7 + column * 3) % 10) / 10 + (column % 2 == row % 2 ? 1 : 0);
        }
    }
    TributaryParticipant participant;
    TributaryModel model;
    if (count == 3 && strcmp(arguments[2], "graph") == 0) {
        graph(options);
        return 0;
    }
    if (count == 3 && strcmp(arguments[2], "offline") != 0) {
        another_kind(options, arguments[2], labels);
        return 0;
    }
    if (count == 3) {
        EXPECT(OK, tributary_start(options, NULL, &participant));
        EXPECT(OK, tributary_model(participant, "ready", &model));
        EXPECT(OK, tributary_close(participant, 10000));
        use(model, features);
        EXPECT(NOTHING, tributary_model_load(options, NULL, "another", &model));
        EXPECT(OK, tributary_model_load(options, NULL, "ready", &model));
        print(use(model, features));
        return 0;
    }
    refuse_clear(options);
    EXPECT(OK, tributary_start(options, NULL, &participant));
    TributaryJob job;
    while (has_job(participant, &job)) {
        EXPECT_WORDS(UPDATE, "at least one", tributary_job_train(job, features, labels, 0, WIDTH));
        EXPECT_WORDS(ARGUMENT, "features is NULL", tributary_job_train(job, NULL, labels, ROWS, WIDTH));
        EXPECT_WORDS(ARGUMENT, "too many", tributary_job_train(job, features, labels, SIZE_MAX, 2));
        EXPECT(UPDATE, tributary_job_train(job, features, labels, ROWS / 2, WIDTH * 2));
        EXPECT(UPDATE, tributary_job_train(job, features, wrong, ROWS, WIDTH));
        EXPECT(OK, tributary_job_train(job, features, labels, ROWS, WIDTH));
        EXPECT(CLOSED, tributary_job_train(job, features, labels, ROWS, WIDTH));
    }
    char names[64];
    EXPECT(OK, tributary_models(participant, names, sizeof names, NULL));
    CHECK(strcmp(names, "[\"ready\"]") == 0);
    EXPECT(OK, tributary_model(participant, "ready", &model));
    EXPECT(OK, tributary_close(participant, 10000));
    print(use(model, features));
    return 0;
}
