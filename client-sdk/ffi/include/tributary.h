// Tributary for C: take part in federated learning.
//
// Made from client-sdk/ffi/src/c by its test; do not edit.
//
// - Every call returns a TributaryCode. 0 to 2 are no errors; after others tributary_last_error has the reason in words,
//   for the thread that called.
// - Handles are numbers. Any thread may use any handle. A handle that was closed, answered, freed or made up is refused
//   with TRIBUTARY_CODE_CLOSED.
// - Texts are UTF-8 and end with NUL. What a caller passes is not needed any more once the call has returned, but for the
//   functions and the context of TributaryCallbacks. What a call gives belongs to the caller if it is copied into a buffer, and to
//   the job or the model if it is a pointer.
// - A process that forks makes its participants after the fork.


#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>


// A value that the app does not know.
#define TRIBUTARY_UNKNOWN -1

// Result of a call. 0 to 2 are not errors. For others `tributary_last_error` has the reason in words, except for
// TOO_SMALL and TIMEOUT, whose names suffice.
typedef enum TributaryCode {
  // Done.
  TRIBUTARY_CODE_OK = 0,
  // The result is empty: the job, tensor, id or model does not exist yet; or the answer to the question is false.
  TRIBUTARY_CODE_NOTHING = 1,
  // The participant has ended: its task is over, or the app stopped it.
  TRIBUTARY_CODE_ENDED = 2,
  // An argument is NULL, not aligned, not UTF-8 or out of its range. The call had no effect.
  TRIBUTARY_CODE_ARGUMENT = 16,
  // A buffer is too small; the returned length states the size that it needs, with the final NUL if it is a text.
  TRIBUTARY_CODE_TOO_SMALL = 17,
  // A setting is missing or cannot be used.
  TRIBUTARY_CODE_CONFIGURATION = 18,
  // The participant is not enrolled, was revoked, or has expired: it needs a token.
  TRIBUTARY_CODE_ENROLLMENT = 19,
  // The journal cannot be used: the text states the remedy.
  TRIBUTARY_CODE_JOURNAL = 20,
  // The update does not fit the model, or a checkpoint is too large. It was not sent, and the job still takes an
  // answer.
  TRIBUTARY_CODE_UPDATE = 21,
  // The round has stopped waiting for the job; get the next one.
  TRIBUTARY_CODE_OVERDUE = 22,
  // The job was answered before.
  TRIBUTARY_CODE_ANSWERED = 23,
  // The handle is invalid: it was closed, answered, freed or made up.
  TRIBUTARY_CODE_CLOSED = 24,
  // The participant belongs to the process that made it: make it after the fork.
  TRIBUTARY_CODE_OTHER_PROCESS = 25,
  // The call waits, and was made from within a callback: make it from another thread.
  TRIBUTARY_CODE_IN_CALLBACK = 26,
  // The time was up before the participant had ended.
  TRIBUTARY_CODE_TIMEOUT = 27,
  // Any other error, such as a final rejection by the coordinator.
  TRIBUTARY_CODE_FAILED = 28,
  // A defect of the library, which was contained. Please report it.
  TRIBUTARY_CODE_DEFECT = 29,
} TributaryCode;

// The rule of a step.
typedef enum TributaryOptimizer {
  // Stochastic gradient descent, with `momentum` and with `weight_decay` as a term of the gradient.
  TRIBUTARY_OPTIMIZER_SGD = 0,
  // AdamW (Loshchilov and Hutter 2019), with `beta1`, `beta2` and `epsilon`, and with `weight_decay` decoupled from
  // the gradient.
  TRIBUTARY_OPTIMIZER_ADAMW = 1,
} TributaryOptimizer;

// Purpose of a job. The jobs of one round may differ in it.
typedef enum TributaryPurpose {
  // The shared model: the one that was received, or shared adapters; where tensors stay on the device, with these in
  // it. The update is made of it. The app's metrics of the model that the job begins with count as those of the
  // received one.
  TRIBUTARY_PURPOSE_SHARED = 0,
  // The device's own model, or its own part of one. The app's metrics of the model that the job begins with are
  // ignored.
  TRIBUTARY_PURPOSE_OWN = 1,
} TributaryPurpose;

// The next step.
typedef enum TributaryTodo {
  // Send a request and wait for its answer: perform.
  TRIBUTARY_TODO_SEND = 0,
  // Fetch a model: perform.
  TRIBUTARY_TODO_FETCH = 1,
  // Train: perform, which takes as long as the app's training does.
  TRIBUTARY_TODO_TRAIN = 2,
  // Read or write the journal: perform.
  TRIBUTARY_TODO_JOURNAL = 3,
  // Another thread performs the step: tick again later, or when it has returned.
  TRIBUTARY_TODO_BUSY = 4,
  // Wait until a moment.
  TRIBUTARY_TODO_WAIT_UNTIL = 5,
} TributaryTodo;

// The state of the device. Any number outside the named ones means `TRIBUTARY_UNKNOWN`. A condition of
// `device_conditions` in the options on an unknown state does not hold.
typedef struct TributaryDeviceState {
  // 1 if it is, 0 if it is not.
  int32_t charging;
  // 1 if traffic on the network is free of charge, 0 if it is metered.
  int32_t unmetered;
  // 1 if the device is unused, 0 if it is in use.
  int32_t idle;
  // 0 to 100.
  int32_t battery_percent;
  // 0 nominal, 1 fair, 2 serious (the system slows down), 3 critical.
  int32_t thermal;
} TributaryDeviceState;

// One request that the app's HTTP client sends: a number, to be copied freely. Any thread may use it, also in `begin_request`. It stands
// for the exchange until `tributary_exchange_end` or `tributary_exchange_fail`, one of which must be called for each; afterwards calls
// return `TRIBUTARY_CODE_CLOSED`.
typedef struct TributaryExchange {
  // 0 is invalid.
  uint64_t id;
} TributaryExchange;

// A header of a request or of an answer.
typedef struct TributaryHeader {
  // Of a request in lower case.
  const char *name;
  // In UTF-8, ended by a zero byte.
  const char *value;
} TributaryHeader;

// A request to the coordinator.
typedef struct TributaryRequest {
  // `GET`, `POST` or `PUT`.
  const char *method;
  // Path and query; `server` of the options comes before it.
  const char *path;
  // To be sent as they are: some requests are signed.
  const struct TributaryHeader *headers;
  // Number of `headers`, at least one.
  size_t header_count;
  // Of `body_bytes` bytes, 8 MiB at most; absent if that is 0.
  const uint8_t *body;
  // Length of the body.
  size_t body_bytes;
} TributaryRequest;

// Callbacks of an app; each may be NULL, and then is left out.
//
// **Callbacks may come from any thread**, also two different ones at the same time. Events and queries come one after
// the other, and so do calls of the key store. They must return immediately, and must not call waiting functions
// (`TRIBUTARY_CODE_IN_CALLBACK`). The key store is called while the journal is written, by the writing thread. That
// may be one of the app's in a call such as `tributary_job_save_checkpoint`. The key store must not use a job or a
// machine. **A callback in C++ must catch its exceptions**: an exception that leaves it is undefined behaviour, and
// usually ends the process. Callbacks end when `tributary_close` has returned TRIBUTARY_CODE_OK. Until then `context`
// and the functions must stay; the structure itself may go as soon as `tributary_start` has returned.
typedef struct TributaryCallbacks {
  // Handed to every callback as it is.
  void *context;
  // Receives an event: its name in snake case, and its fields as a JSON object. Both texts are invalid after it
  // returns.
  void (*on_event)(void *context, const char *name, const char *fields);
  // Writes the device's state into `state`, which is unknown before. Returns 0; any other value if it fails, and
  // then all of it is unknown. The required state is `device_conditions` of the options: by default the device
  // charges, is unused, has an unmetered network, and is not hot. While that does not hold, this is called again
  // after `ask_again_ms`, and immediately after `tributary_conditions_changed`. If it is NULL, the participant works
  // whenever it runs.
  int (*device_state)(void *context, struct TributaryDeviceState *state);
  // Reads a secret of the journal from the device's key store into a buffer of `size` bytes, and returns its length.
  // Returns 0 before the first save under the name, and -1 if it cannot be read. Needs `save_secret`; without both
  // the secrets are in files next to the journal.
  ptrdiff_t (*load_secret)(void *context, const char *name, uint8_t *buffer, size_t size);
  // Replaces a secret, and returns 0 once it survives a crash; anything else if it cannot.
  int (*save_secret)(void *context, const char *name, const uint8_t *bytes, size_t count);
  // Begins to send a request by an HTTP client of the app's own, in the place of the library's HTTPS: once, to the coordinator alone, over
  // TLS 1.3, without following redirects. It returns at once; the answer comes by `tributary_exchange_head`, `_piece` and `_end`, or
  // `_fail`, from any thread, and one of the last two must come. `request` and all that it points to are gone when this returns. A second
  // request may begin while one is under way. A coordinator may take 25 s until it answers. Needs `show_certificate`; without both the
  // library's own HTTPS is used, where it was built with it.
  void (*begin_request)(void *context,
                        struct TributaryExchange exchange,
                        const struct TributaryRequest *request);
  // Presents this certificate in the TLS handshake from now on: the chain in PEM, and its private key in PKCS #8
  // (DER). The client must present them only to the coordinator, and must not store the key. Both are invalid after
  // it returns. Returns 0; any other value if it fails, and then the participant ends. Not called with
  // `signed_requests` in the options.
  int (*show_certificate)(void *context, const char *certificate, const uint8_t *key, size_t key_bytes);
} TributaryCallbacks;

// A participant: a number, to be copied freely. Any thread may use it. It stands for the participant from
// `tributary_start` until `tributary_close`; afterwards, and where it is made up, calls return `TRIBUTARY_CODE_CLOSED`.
typedef struct TributaryParticipant {
  // 0 is invalid.
  uint64_t id;
} TributaryParticipant;

// One model to train, or an analysis to give rows for: a number, to be copied freely. Any thread may use it. It is
// valid until the job is answered (`tributary_job_finish`, `_give_rows`, `_fail`, `_refuse`) or freed
// (`tributary_job_free`). Afterwards calls return `TRIBUTARY_CODE_CLOSED`, and **every pointer that was given for the
// job is invalid**. A forked child cannot end it or save a checkpoint of it (`TRIBUTARY_CODE_OTHER_PROCESS`).
typedef struct TributaryJob {
  // 0 is invalid.
  uint64_t id;
} TributaryJob;

// Bytes sent and received, without those of TLS.
typedef struct TributaryDataUse {
  // In this day of UTC.
  uint64_t sent_today;
  // In this day of UTC.
  uint64_t received_today;
  // Ever with this journal.
  uint64_t sent;
  // Ever with this journal.
  uint64_t received;
} TributaryDataUse;

// The numbers of a job that most training functions need; `tributary_job_description` has all of the plan. An app that
// does not support them refuses the job (`tributary_job_refuse`).
typedef struct TributaryPlan {
  // Of the task, from 1.
  uint32_t round;
  // Passes over the local data; not counted if `steps` is above 0.
  uint32_t epochs;
  // Number of steps; 0 if `epochs` sets the length.
  uint32_t steps;
  // Examples in a mini-batch.
  uint32_t batch_size;
  // Of the local optimizer.
  double learning_rate;
  // Of the local optimizer, from 0 to below 1.
  double momentum;
  // L2 penalty.
  double weight_decay;
  // Of FedProx: strength of the pull towards the received model; 0 without a pull.
  double proximal_mu;
  // L2 norm to which the gradient of each step is clipped; 0 if it is not.
  double gradient_clip;
  // Mini-batches whose gradients are averaged into one step, at least 1.
  uint32_t accumulate;
  // The rule of a step; its state begins anew in each round.
  enum TributaryOptimizer optimizer;
  // AdamW: decay rate of the mean of the gradients, from 0 to below 1; 0 for another optimizer.
  double beta1;
  // AdamW: decay rate of the mean of their squares, from 0 to below 1; 0 for another optimizer.
  double beta2;
  // AdamW: added to the denominator of a step, above 0; 0 for another optimizer.
  double epsilon;
  // For shuffling and the like: repeatable if the participant has a seed, otherwise random.
  uint64_t seed;
  // 1 if the learning rate changes from step to step, by `schedule` and `warmup` of the plan in
  // `tributary_job_description`; 0 if it is the same for all steps of the round. `learning_rate` includes the
  // changes from round to round.
  int32_t rate_changes;
  // Training ends after so many steps and submits its result, even if `steps` or `epochs` ask for more. 0 means
  // unlimited.
  uint32_t budget_steps;
  // The same after so many milliseconds, but not before the first step. 0 means unlimited.
  uint64_t budget_ms;
} TributaryPlan;

// A tensor of a job's model, or of a model. The pointers belong to the job or the model.
typedef struct TributaryTensor {
  // Unique within the model.
  const char *name;
  // Dimensions, outermost first.
  const uint64_t *shape;
  // Number of dimensions; 0 for a scalar.
  size_t dimensions;
  // Index of its first element in the flat vector of parameters (row-major).
  size_t offset;
  // Number of its elements.
  size_t count;
} TributaryTensor;

// A metric: of a training, or of a model.
typedef struct TributaryMetric {
  // Of a training: one of the task's metrics; others are dropped. Of a model: belongs to the model.
  const char *name;
  // The mean over the examples; finite.
  double value;
  // Number of examples measured.
  uint64_t count;
} TributaryMetric;

// Rows of numbers, each with a class.
typedef struct TributaryRows {
  // `rows` rows of `width` numbers, row after row.
  const float *features;
  // The class of each row.
  const uint32_t *labels;
  // Number of rows, at least 1.
  size_t rows;
  // Numbers in a row.
  size_t width;
} TributaryRows;

// The model of a task on this device: a number, to be copied freely. Any thread may use it. It stands for the model until
// `tributary_model_free`, also after the participant was closed; afterwards calls return `TRIBUTARY_CODE_CLOSED`, and **every
// pointer that was given for the model is gone**.
typedef struct TributaryModel {
  // 0 is invalid.
  uint64_t id;
} TributaryModel;

// Where a model comes from. The pointers belong to the model.
typedef struct TributaryOrigin {
  // Of a personalized model: the round that left it on the device, from 1. 0 of a published one.
  uint32_t round;
  // The published version, where 0 is the initial one. 0 for a personalized model.
  uint32_t version;
  // Of a published model: SHA-256 of its file, in hexadecimal. NULL of a personalized one.
  const char *sha256;
  // The task's description of its model as JSON; NULL if the task lacks it.
  const char *architecture;
} TributaryOrigin;

// An input of a graph, for all examples. Two of `floats`, `integers` and `truths` are NULL.
typedef struct TributaryColumn {
  // Its name in the graph of `model.architecture`.
  const char *name;
  // For an input of floats: `count` elements, one example after the other, each row-major.
  const float *floats;
  // For an input of integers: `count` elements, such as ids from 0 on.
  const int64_t *integers;
  // For an input of truth values: `count` bytes, such as a mask's; 0 is false, 1 is true.
  const uint8_t *truths;
  // Number of elements of all examples.
  size_t count;
} TributaryColumn;

// Examples of a graph. A prediction ignores the targets; for training one of `classes` and `numbers` is NULL.
typedef struct TributaryExamples {
  // One for each input of the graph, in any order.
  const struct TributaryColumn *columns;
  // Number of `columns`: that of the graph's inputs.
  size_t column_count;
  // Targets for `cross_entropy` and `next_token`: a class for each example, or a token for each position.
  const uint32_t *classes;
  // Targets for the other losses: a number for each output.
  const float *numbers;
  // Number of `classes` or `numbers`.
  size_t target_count;
  // Number of examples, at least 1.
  size_t examples;
  // Length of their sequences; 1 for a graph without.
  size_t length;
} TributaryExamples;

// A participant that the app drives: a number, to be copied freely. `tributary_machine_tick` returns the next step,
// and `tributary_machine_perform` does it on the calling thread; it has no thread of its own. Any thread may use it,
// until `tributary_machine_close`; afterwards calls return `TRIBUTARY_CODE_CLOSED`.
typedef struct TributaryMachine {
  // 0 is invalid.
  uint64_t id;
} TributaryMachine;

// Input of a tick.
typedef struct TributaryCircumstances {
  // Milliseconds on a monotonic clock of the app, since a moment of its choice.
  uint64_t elapsed_ms;
  // The device's state, for `device_conditions` of the options; ignored without these.
  struct TributaryDeviceState device;
  // Number of training examples; `TRIBUTARY_UNKNOWN` if it is as before.
  int64_t examples;
} TributaryCircumstances;

// Trains on the thread that calls `tributary_machine_perform`, if the step is TRAIN; it answers the job before it
// returns. Without an answer the round is given up, unless `tributary_job_should_pause` and a checkpoint was saved:
// then it is called again with the same job, and resumes. The handle is invalid when it has returned.
typedef void (*TributaryTrain)(void *context, struct TributaryJob job);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as text. Belongs to the library, for ever.
const char *tributary_version(void);

// Copies the reason for the last error of a call on this thread into `buffer`; an empty text before the first error.
// `length`, unless NULL, gets the size that the text needs with its NUL; `TRIBUTARY_CODE_TOO_SMALL` if the buffer has
// less.
enum TributaryCode tributary_last_error(char *buffer,
                                        size_t size,
                                        size_t *length);

// Starts a participant on a thread of its own, and puts its handle into `participant`.
//
// `options` is a JSON object in UTF-8: `server`, `journal`, `ca_pem`, at first `token`, and the other options of
// docs/OPTIONS.md, with defaults. It may be freed when the call returns. `callbacks` may be NULL; see
// `TributaryCallbacks` for the lifetime of its functions and context. Close the participant with `tributary_close`.
//
// Errors: ARGUMENT, CONFIGURATION, ENROLLMENT, JOURNAL.
enum TributaryCode tributary_start(const char *options,
                                   const struct TributaryCallbacks *callbacks,
                                   struct TributaryParticipant *participant);

// Waits for the next job for at most `limit_ms` milliseconds, and puts its handle into `job`. Threads may call
// concurrently; each job goes to one of them.
//
// Returns OK; NOTHING if the limit has passed without a job: call again; ENDED once the participant has ended, and
// then always. Errors: the reason of an early end (ENROLLMENT, JOURNAL, FAILED), CLOSED (also if another thread closes
// it), IN_CALLBACK.
enum TributaryCode tributary_next(struct TributaryParticipant participant,
                                  uint64_t limit_ms,
                                  struct TributaryJob *job);

// Pauses, and stops requests until `tributary_resume`. A job under way should pause: once it has saved a checkpoint,
// or in ten seconds, it is withdrawn, and comes again if its round still waits. Without a checkpoint by then its round
// is given up, as is any other without a finished update. Does not wait.
enum TributaryCode tributary_pause(struct TributaryParticipant participant);

// Ends a pause. Does not wait.
enum TributaryCode tributary_resume(struct TributaryParticipant participant);

// Has the participant ask `device_state` now. Does not wait.
enum TributaryCode tributary_conditions_changed(struct TributaryParticipant participant);

// Sets the number of training examples that is reported to the coordinator; `tributary_job_finish` sets it, too. Does
// not wait.
enum TributaryCode tributary_set_examples(struct TributaryParticipant participant,
                                          uint64_t examples);

// Copies the participant's id into `buffer`, as `tributary_last_error` does with its text. NOTHING before it is enrolled.
enum TributaryCode tributary_id(struct TributaryParticipant participant,
                                char *buffer,
                                size_t size,
                                size_t *length);

// Copies the spending on each private task, from the participant's own ledger, into `buffer` as a JSON array, as
// `tributary_last_error` does with its text.
enum TributaryCode tributary_privacy_spent(struct TributaryParticipant participant,
                                           char *buffer,
                                           size_t size,
                                           size_t *length);

// Copies the spending on all tasks together, and the limit on it, into `buffer` as a JSON object, as
// `tributary_last_error` does with its text.
enum TributaryCode tributary_privacy_lifetime(struct TributaryParticipant participant,
                                              char *buffer,
                                              size_t size,
                                              size_t *length);

// Copies the participant's refusals and their reasons into `buffer` as a JSON array, the latest last, as
// `tributary_last_error` does with its text. Each of the last fifty reasons has the attempt that was refused last
// (`task`, `round`, `attempt`), `code` (sent to the coordinator, or null), `reason` (in words, which stay on the
// device), `at_ms` (since 1970) and `times`. Refusals of earlier processes with this journal are included.
enum TributaryCode tributary_refusals(struct TributaryParticipant participant,
                                      char *buffer,
                                      size_t size,
                                      size_t *length);

// Copies the condition of the device that holds the participant up now into `buffer`, as `tributary_last_error` does
// with its text: its name (`charging`, `unmetered`, `idle`, `battery`, `thermal` or `data_cap`), a colon, and the same
// in words. NOTHING if all hold.
enum TributaryCode tributary_held_up(struct TributaryParticipant participant,
                                     char *buffer,
                                     size_t size,
                                     size_t *length);

// Puts the bytes sent and received into `used`.
enum TributaryCode tributary_data_use(struct TributaryParticipant participant, struct TributaryDataUse *used);

// Requests the participant's stop, and returns immediately; `tributary_next` returns ENDED once it has stopped.
enum TributaryCode tributary_stop(struct TributaryParticipant participant);

// Withdraws this device's participant while it is stopped: the coordinator revokes it for good. Copies the coordinator's
// signed statement about the rounds and versions that contain its updates, verified, into `buffer` as a JSON object, as
// `tributary_last_error` does with its text: store it as evidence. `options` and `callbacks` are those of
// `tributary_start`, and may be freed when the call returns.
//
// Waits for the coordinator, for some minutes at most. After an error or TOO_SMALL, repeat the call. The journal stays as
// it is; delete it to delete the device's own models.
//
// Errors: ARGUMENT, CONFIGURATION, ENROLLMENT, JOURNAL (also while a participant has the journal), FAILED, IN_CALLBACK.
enum TributaryCode tributary_withdraw(const char *options,
                                      const struct TributaryCallbacks *callbacks,
                                      char *buffer,
                                      size_t size,
                                      size_t *length);

// Stops the participant, waits for its end for at most `limit_ms` milliseconds, and forgets the handle; a few seconds are
// enough while a request is under way. Jobs that were handed out are overdue afterwards, and still have to be freed.
//
// Callbacks end before OK is returned. After TIMEOUT a callback is still running: its thread is left behind, and all
// data behind `TributaryCallbacks` must stay. Errors: CLOSED, IN_CALLBACK.
enum TributaryCode tributary_close(struct TributaryParticipant participant,
                                   uint64_t limit_ms);

// Puts the numbers of the job into `plan`.
enum TributaryCode tributary_job_plan(struct TributaryJob job, struct TributaryPlan *plan);

// Points `json` to the job as a JSON object: `task`, `round`, `purpose` (`shared` or `own`), `seed`, `plan`, `architecture`,
// `metrics`, and `tensors` with name and shape. The text belongs to the job.
enum TributaryCode tributary_job_description(struct TributaryJob job,
                                             const char **json);

// Puts the tensor of this number, from 0 and in the order of the parameters, into `tensor`; NOTHING beyond the last.
enum TributaryCode tributary_job_tensor(struct TributaryJob job,
                                        size_t number,
                                        struct TributaryTensor *tensor);

// Points `values` to the parameters of the model, `count` floats, which may be trained in place. They belong to the
// job, and the library leaves them alone until it is answered. Threads of the app that use them at the same time must
// synchronize.
enum TributaryCode tributary_job_parameters(struct TributaryJob job,
                                            float **values,
                                            size_t *count);

// OVERDUE if the round has stopped waiting for the job: training may stop. OK otherwise. Cheap: call it between
// batches.
enum TributaryCode tributary_job_check(struct TributaryJob job);

// OK if the training should pause, because the device's conditions do not hold or the app pauses: save a checkpoint
// then, within ten seconds. The job is withdrawn, and comes again after the pause, if its round still waits. Without a
// checkpoint the round is given up. NOTHING if training may continue. Cheap: call it between batches.
enum TributaryCode tributary_job_should_pause(struct TributaryJob job);

// Copies the last saved state of this job's training, before it was paused or its process was killed, into `buffer` of
// `size` bytes; NOTHING if it begins. `length`, unless NULL, gets its number of bytes; TOO_SMALL if the buffer has
// less room.
enum TributaryCode tributary_job_checkpoint(struct TributaryJob job,
                                            uint8_t *buffer,
                                            size_t size,
                                            size_t *length);

// Saves `count` bytes, the state of the training, so that it resumes from there after a pause, and after its process
// was killed. They are copied, replace the last ones, and are deleted with the round. The journal seals them, once in
// `checkpoint_every_ms` of the options. States saved in between are written before the training pauses.
//
// Errors: UPDATE (more than four times `max_model_bytes`), OVERDUE (the round has stopped waiting, or the job was
// withdrawn), JOURNAL; the last ones are still there, and so is the job. ARGUMENT, CLOSED.
enum TributaryCode tributary_job_save_checkpoint(struct TributaryJob job,
                                                 const uint8_t *state,
                                                 size_t count);

// OK if the last checkpoint in the journal is old enough for a new one; NOTHING if it is not. Cheap: call it between batches.
enum TributaryCode tributary_job_is_checkpoint_due(struct TributaryJob job);

// Submits the trained model, of at least one example, and ends the job. The update leaves the device clipped,
// weighted, noised and masked as the task prescribes.
//
// `values` are `count` floats in the order of the parameters, which are copied; NULL and 0, or the job's own pointer,
// if they were trained in place. `metrics` may be NULL if `metric_count` is 0. Metrics, except those of the training
// itself (`train_…`), count as those of the received model, so measure the model that the job begins with. With
// TRIBUTARY_PURPOSE_OWN they are ignored, except for those of the device's own model (`personal_…`).
//
// Errors: UPDATE (of another length, not finite, zero examples) and ARGUMENT, after which **the job is still open**;
// OVERDUE, after which it has ended; CLOSED, or ANSWERED where another thread has just answered it.
enum TributaryCode tributary_job_finish(struct TributaryJob job,
                                        const float *values,
                                        size_t count,
                                        uint64_t examples,
                                        const struct TributaryMetric *metrics,
                                        size_t metric_count);

// Trains the task's ready model (`model.architecture`) by the plan and the job's constraints, submits the result and
// ends the job: for apps without a training function. `features` are `rows` rows of `width` numbers, `labels` the
// class of each row. Waits until it is trained.
//
// Errors: UPDATE (the examples do not fit the model, or the task's model is not a ready one, as always in a library
// that was built without the ready models) and ARGUMENT, after which **the job is still open**. OVERDUE: the round has
// stopped waiting, or the training should pause and has saved a checkpoint. The handle is then invalid, and the result
// was not submitted. A paused job comes again, with a handle of its own, while its round still waits. CLOSED, or
// ANSWERED where another thread has just answered it.
enum TributaryCode tributary_job_train(struct TributaryJob job,
                                       const float *features,
                                       const uint32_t *labels,
                                       size_t rows,
                                       size_t width);

// The same with held-out rows. For a job of the shared model the result then includes the initial model's `loss` and
// `accuracy` on `held_out`, for one of the device's own model the trained model's `personal_loss` and `personal_accuracy`.
// `held_out` may be NULL. Both may go as soon as the call has returned.
//
// Errors: those of `tributary_job_train`.
enum TributaryCode tributary_job_train_and_measure(struct TributaryJob job,
                                                   const struct TributaryRows *rows,
                                                   const struct TributaryRows *held_out);

// Reports that training failed, and ends the job. `reason` stays on the device.
enum TributaryCode tributary_job_fail(struct TributaryJob job, const char *reason);

// Reports that this app does not support such jobs, and ends the job. `reason` stays on the device.
enum TributaryCode tributary_job_refuse(struct TributaryJob job, const char *reason);

// Ends a job without an answer, which then counts as failed.
enum TributaryCode tributary_job_free(struct TributaryJob job);

// Puts the purpose of the job into `purpose`.
enum TributaryCode tributary_job_purpose(struct TributaryJob job, enum TributaryPurpose *purpose);

// Points `values` to the model, `count` floats, that `proximal_mu` of the plan pulls towards; NOTHING if that is the
// one that the job begins with. They belong to the job, and are only to be read. Only for an app with `trains_within`
// in its options.
enum TributaryCode tributary_job_anchor(struct TributaryJob job,
                                        const float **values,
                                        size_t *count);

// OK if the tensor of this number, from 0, must stay as it is; NOTHING if it is to be trained, or does not exist. Only
// an app with `trains_within` in its options gets a job with such a tensor.
enum TributaryCode tributary_job_is_frozen(struct TributaryJob job,
                                           size_t number);

// Points `values` to the addition to the gradient of every step, `count` floats in the order of the parameters;
// NOTHING without an addition. They belong to the job, and are only to be read. Only for an app with `trains_within`
// in its options.
enum TributaryCode tributary_job_correction(struct TributaryJob job,
                                            const float **values,
                                            size_t *count);

// Points `values` to the frozen model, `count` floats, whose adapters the parameters of the job are; NOTHING if they
// are a model themselves. A layer computes with its matrix NAME + `scale` * B * A, where A and B are the job's tensors
// `NAME.lora_a` and `NAME.lora_b`. They belong to the job, and are only to be read. Only for an app with
// `trains_adapters` in its options.
enum TributaryCode tributary_job_base(struct TributaryJob job,
                                      const float **values,
                                      size_t *count,
                                      float *scale);

// Puts the tensor of the frozen model of this number, from 0, into `tensor`; NOTHING beyond the last, and without such a model.
enum TributaryCode tributary_job_base_tensor(struct TributaryJob job,
                                             size_t number,
                                             struct TributaryTensor *tensor);

// Points `json` to the job's analysis as the JSON object of its task: `kind`, `max_rows`, `columns` and further
// parameters. NOTHING if the job trains a model. The text belongs to the job. Only an app with `answers_analyses` in
// its options gets an analysis. Its parameters are empty, except those of an evaluation (`kind`), which are the model to measure: the rows are
// its predictions, the probability of each class or one number, and the targets the true classes or numbers.
enum TributaryCode tributary_job_analysis(struct TributaryJob job,
                                          const char **json);

// Submits this device's rows for an analysis, and ends the job. `values` are `rows` rows of `width` numbers, row after
// row, with the columns of the analysis in their order. `targets` has the value to predict of each row; NULL if the
// analysis predicts none. Both are copied. The rows stay on the device: only the counts and sums of the analysis leave
// it, masked as the task prescribes. Give the same rows in the same order in each round.
//
// Errors: UPDATE (the rows do not fit the analysis, or have a number that is not finite, or the job trains a model) and ARGUMENT, after which
// **the job is still open**; OVERDUE, after which it has ended; CLOSED, or ANSWERED where another thread has just answered it.
enum TributaryCode tributary_job_give_rows(struct TributaryJob job,
                                           const double *values,
                                           size_t rows,
                                           size_t width,
                                           const double *targets);

// Puts a handle for the model of a task into `model`, for use on this device. If the task personalizes, this is the
// device's own model. Otherwise it is the verified published version that the device's last round began with, or the
// last version once the task is over. NOTHING before the first model. It is read from the journal, so it needs no
// network, and outlives the participant. It stays the same while the participant continues. Free it with
// `tributary_model_free`.
//
// Errors: ARGUMENT, JOURNAL, CLOSED, IN_CALLBACK.
enum TributaryCode tributary_model(struct TributaryParticipant participant,
                                   const char *task,
                                   struct TributaryModel *model);

// The same while the participant is stopped: from the journal in the options, without a thread or a network. `options`
// and `callbacks` are those of `tributary_start`; of the callbacks, only those for secrets are used. A running
// participant locks the journal: use `tributary_model` then.
//
// Errors: ARGUMENT, CONFIGURATION, JOURNAL.
enum TributaryCode tributary_model_load(const char *options,
                                        const struct TributaryCallbacks *callbacks,
                                        const char *task,
                                        struct TributaryModel *model);

// Copies the names of the tasks that there is a model of, the latest last, into `buffer` as a JSON array, as `tributary_last_error`
// does with its text.
enum TributaryCode tributary_models(struct TributaryParticipant participant,
                                    char *buffer,
                                    size_t size,
                                    size_t *length);

// Puts into `origin` where the model comes from.
enum TributaryCode tributary_model_origin(struct TributaryModel model, struct TributaryOrigin *origin);

// Puts the tensor of this number, from 0 and in the order of the parameters, into `tensor`; NOTHING beyond the last.
enum TributaryCode tributary_model_tensor(struct TributaryModel model,
                                          size_t number,
                                          struct TributaryTensor *tensor);

// Puts into `metric` a metric of the model, by number, from 0; NOTHING beyond the last. Those of a published model are
// those of the app's answer in the round that began with it, without those of the training (`train_loss`). The list is
// empty before that answer, after an answer without metrics of the model, as that of `tributary_job_train`, and for
// the last version of a task that is over.
enum TributaryCode tributary_model_metric(struct TributaryModel model,
                                          size_t number,
                                          struct TributaryMetric *metric);

// Points `values` to the parameters, `count` floats, flat and row-major. They belong to the model, and are only to be read.
enum TributaryCode tributary_model_parameters(struct TributaryModel model,
                                              const float **values,
                                              size_t *count);

// Computes the scores of each class for each row, before softmax, if the model is one of the SDK's own
// (`model.architecture`), and copies them into `scores`, row after row; `size` is its room in floats. `rows` are
// `count` numbers, row after row. `length`, unless NULL, gets the number of scores; TOO_SMALL if the buffer has less
// room.
//
// Errors: ARGUMENT (the model is not one of the SDK's own, as always in a library that was built without the ready
// models, or the rows do not fit), CLOSED.
enum TributaryCode tributary_model_scores(struct TributaryModel model,
                                          const float *rows,
                                          size_t count,
                                          float *scores,
                                          size_t size,
                                          size_t *length);

// Forgets the model.
enum TributaryCode tributary_model_free(struct TributaryModel model);

// Trains the task's graph (`model.architecture`) by the plan and the job's constraints, submits the result and ends the job:
// for a graph whose examples are not rows with classes. Waits until it is trained. With `held_out`, which may be NULL, the
// result for a job of the shared model includes the initial model's `loss` on it, and its `accuracy` unless the model
// predicts numbers. All of it may go as soon as the call has returned.
//
// Errors: UPDATE (a column is unknown, missing, given twice, of another type or length, or has an id outside its table: the
// text lists the graph's inputs; the targets do not fit; the task's model is no graph, as always in a library that was built
// without the ready models) and ARGUMENT, after which **the job is still open**. Others as for `tributary_job_train`.
enum TributaryCode tributary_job_train_columns(struct TributaryJob job,
                                               const struct TributaryExamples *examples,
                                               const struct TributaryExamples *held_out);

// Computes the first output of a graph (`model.architecture`), such as scores before softmax or numbers, and copies it into
// `output`, one example after the other; `size` is its room in floats. `length`, unless NULL, gets the number of floats;
// TOO_SMALL if the buffer has less room.
//
// Errors: ARGUMENT (the model is no graph, as always in a library that was built without the ready models; a column is
// unknown, missing, given twice, of another type or length, or has an id outside its table: the text lists the graph's
// inputs), CLOSED.
enum TributaryCode tributary_model_predict(struct TributaryModel model,
                                           const struct TributaryExamples *examples,
                                           float *output,
                                           size_t size,
                                           size_t *length);

// Opens the journal, and puts the handle of a participant that the app drives into `machine`. `options` and
// `callbacks` are those of `tributary_start`, but `device_state` must be NULL, since it comes with each tick. The
// ticking thread delivers events. Opening is local: it neither starts a thread nor sends a request. Close it with
// `tributary_machine_close`.
//
// Errors: ARGUMENT, CONFIGURATION, ENROLLMENT, JOURNAL.
enum TributaryCode tributary_machine_open(const char *options,
                                          const struct TributaryCallbacks *callbacks,
                                          struct TributaryMachine *machine);

// Puts the next step into `todo`, and into `until_ms` the moment of WAIT_UNTIL, on the clock of `elapsed_ms`;
// otherwise 0. It returns without waiting or starting a thread: it computes for microseconds, plus the time to hash
// and encode outgoing data. While a thread performs the step, the answer is BUSY, unless the round is left: because
// its time is up, or the conditions have not held for ten seconds and a checkpoint is missing.
//
// Returns OK; ENDED once the participant has ended, and then always. Errors: the reason of an early end (ENROLLMENT,
// JOURNAL, FAILED), ARGUMENT, CLOSED, IN_CALLBACK, OTHER_PROCESS.
enum TributaryCode tributary_machine_tick(struct TributaryMachine machine,
                                          const struct TributaryCircumstances *circumstances,
                                          enum TributaryTodo *todo,
                                          uint64_t *until_ms);

// Performs the step of the last tick on this thread, and waits for it; the next tick then returns the following step.
// `train` is called with `context` if the step is TRAIN and has a job. The evaluation of a task's last version lacks a
// job, since only a trainer in Rust measures it; here it has no metrics. A training should pause after
// `training_slice_ms` of the options, which an app that saves checkpoints may do (`tributary_job_should_pause`). While
// it sends or fetches, a helper thread may look up the server's name, or read the model's file.
//
// Returns OK; NOTHING if all steps are done or in progress on other threads. Errors: ARGUMENT, CLOSED, IN_CALLBACK,
// OTHER_PROCESS.
enum TributaryCode tributary_machine_perform(struct TributaryMachine machine,
                                             TributaryTrain train,
                                             void *context);

// Has it end from the next tick on: an unfinished training is given up, and an update that waits to be sent stays in the journal.
enum TributaryCode tributary_machine_stop(struct TributaryMachine machine);

// Copies the participant's id into `buffer`, as `tributary_last_error` does with its text. NOTHING before it is enrolled.
enum TributaryCode tributary_machine_id(struct TributaryMachine machine,
                                        char *buffer,
                                        size_t size,
                                        size_t *length);

// The condition of the device that held it up at the last tick, in the form of `tributary_held_up`.
enum TributaryCode tributary_machine_held_up(struct TributaryMachine machine,
                                             char *buffer,
                                             size_t size,
                                             size_t *length);

// As `tributary_privacy_spent`.
enum TributaryCode tributary_machine_privacy_spent(struct TributaryMachine machine,
                                                   char *buffer,
                                                   size_t size,
                                                   size_t *length);

// As `tributary_privacy_lifetime`.
enum TributaryCode tributary_machine_privacy_lifetime(struct TributaryMachine machine,
                                                      char *buffer,
                                                      size_t size,
                                                      size_t *length);

// As `tributary_refusals`.
enum TributaryCode tributary_machine_refusals(struct TributaryMachine machine,
                                              char *buffer,
                                              size_t size,
                                              size_t *length);

// Puts the bytes sent and received into `used`, as of the last tick.
enum TributaryCode tributary_machine_data_use(struct TributaryMachine machine, struct TributaryDataUse *used);

// As `tributary_model`; reads the journal on this thread.
enum TributaryCode tributary_machine_model(struct TributaryMachine machine,
                                           const char *task,
                                           struct TributaryModel *model);

// As `tributary_models`; reads the journal on this thread.
enum TributaryCode tributary_machine_models(struct TributaryMachine machine,
                                            char *buffer,
                                            size_t size,
                                            size_t *length);

// Forgets the machine immediately; the journal allows it to continue. The journal is free once all threads have left
// it.
enum TributaryCode tributary_machine_close(struct TributaryMachine machine);

// The head of the answer, before its body: its status, and `count` headers. Does not wait.
//
// Returns OK; NOTHING if the participant has stopped waiting: the client may cancel the request. Errors: ARGUMENT,
// CLOSED.
enum TributaryCode tributary_exchange_head(struct TributaryExchange exchange,
                                           uint16_t status,
                                           const struct TributaryHeader *headers,
                                           size_t count);

// The next bytes of the body, which are copied. Waits while more than a megabyte is unread, except in a callback.
//
// Returns OK; NOTHING if the participant has stopped reading: the client may cancel the request. Errors: ARGUMENT,
// CLOSED.
enum TributaryCode tributary_exchange_piece(struct TributaryExchange exchange,
                                            const uint8_t *bytes,
                                            size_t count);

// The answer is complete; the handle is gone. Does not wait.
enum TributaryCode tributary_exchange_end(struct TributaryExchange exchange);

// The answer, or the rest of it, cannot be had, for a reason that a person can read. Ends the handle. Does not wait.
//
// Errors: ARGUMENT, CLOSED.
enum TributaryCode tributary_exchange_fail(struct TributaryExchange exchange,
                                           const char *reason);

// OK if the participant has stopped waiting for the answer, so that the client may cancel the request; otherwise
// NOTHING. Does not wait.
enum TributaryCode tributary_exchange_is_over(struct TributaryExchange exchange);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus
