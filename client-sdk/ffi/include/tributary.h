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


// What the app does not know of its device.
#define TRIBUTARY_UNKNOWN -1

// What a call returns. 0 to 2 are no errors; for others `tributary_last_error` has the reason in words, but for TOO_SMALL and
// TIMEOUT, which say it all.
typedef enum TributaryCode {
  // Done.
  TRIBUTARY_CODE_OK = 0,
  // There is nothing to give: no job yet, no such tensor, no id yet, no model; or it is not so.
  TRIBUTARY_CODE_NOTHING = 1,
  // The participant has ended: its task is over, or it was told to stop.
  TRIBUTARY_CODE_ENDED = 2,
  // An argument is NULL, not aligned, not UTF-8 or out of its range. The call did nothing.
  TRIBUTARY_CODE_ARGUMENT = 16,
  // A buffer is too small; the length that was given back says what it needs, with the final NUL if it is a text.
  TRIBUTARY_CODE_TOO_SMALL = 17,
  // A setting is missing or cannot be used.
  TRIBUTARY_CODE_CONFIGURATION = 18,
  // The participant is not enrolled, was revoked, or has expired: it needs a token.
  TRIBUTARY_CODE_ENROLLMENT = 19,
  // The journal cannot be used: the text says what to do.
  TRIBUTARY_CODE_JOURNAL = 20,
  // The update does not fit the model, or a checkpoint is too large. Nothing was sent, and the job still takes an answer.
  TRIBUTARY_CODE_UPDATE = 21,
  // The round no longer waits for the job; ask for the next one.
  TRIBUTARY_CODE_OVERDUE = 22,
  // The job was answered before.
  TRIBUTARY_CODE_ANSWERED = 23,
  // There is no such handle: it was closed, answered or freed, or never was one.
  TRIBUTARY_CODE_CLOSED = 24,
  // The participant belongs to the process that made it: make it after the fork.
  TRIBUTARY_CODE_OTHER_PROCESS = 25,
  // The call waits, and was made from within a callback: make it from another thread.
  TRIBUTARY_CODE_IN_CALLBACK = 26,
  // The time was up before the participant had ended.
  TRIBUTARY_CODE_TIMEOUT = 27,
  // Anything else, such as what a coordinator refuses for good.
  TRIBUTARY_CODE_FAILED = 28,
  // A defect of the library, which was contained. Please report it.
  TRIBUTARY_CODE_DEFECT = 29,
} TributaryCode;

// The rule of a step.
typedef enum TributaryOptimizer {
  // Stochastic gradient descent, with `momentum` and with `weight_decay` as a term of the gradient.
  TRIBUTARY_OPTIMIZER_SGD = 0,
  // AdamW (Loshchilov and Hutter 2019), with `beta1`, `beta2` and `epsilon`, and with `weight_decay` apart from the gradient.
  TRIBUTARY_OPTIMIZER_ADAMW = 1,
} TributaryOptimizer;

// What a job is for. The jobs of one round may differ in it.
typedef enum TributaryPurpose {
  // The shared model: the one that was received, or shared adapters; where tensors stay on the device, with these in it. The
  // update is made of it. What the app measures of the model that the job begins with counts as of the received one.
  TRIBUTARY_PURPOSE_SHARED = 0,
  // The device's own model, or its own part of one. What the app measures of the model that the job begins with counts for
  // nothing.
  TRIBUTARY_PURPOSE_OWN = 1,
} TributaryPurpose;

// What to do next.
typedef enum TributaryTodo {
  // Send a request and wait for its answer: perform.
  TRIBUTARY_TODO_SEND = 0,
  // Fetch a model: perform.
  TRIBUTARY_TODO_FETCH = 1,
  // Train: perform, which takes as long as the app's training does.
  TRIBUTARY_TODO_TRAIN = 2,
  // Read or write the journal: perform.
  TRIBUTARY_TODO_JOURNAL = 3,
  // Another thread performs what was said: tick again later, or when it has returned.
  TRIBUTARY_TODO_BUSY = 4,
  // Nothing before a moment.
  TRIBUTARY_TODO_WAIT_UNTIL = 5,
} TributaryTodo;

// What the device is like. A number beside those that are named is as good as `TRIBUTARY_UNKNOWN`. What a condition of
// `device_conditions` in the options is about and is not known does not hold.
typedef struct TributaryDeviceState {
  // 1 if it is, 0 if it is not.
  int32_t charging;
  // 1 if the network costs nothing by the byte, 0 if it does.
  int32_t unmetered;
  // 1 if nobody uses the device, 0 if somebody does.
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
  // 0 is no exchange.
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
  // Of `body_bytes` bytes, 8 MiB at most; there is none if that is 0.
  const uint8_t *body;
  // Length of the body.
  size_t body_bytes;
} TributaryRequest;

// What an app does when it is asked; each may be NULL, and then is left out.
//
// **Callbacks may come from any thread**, also two different ones at the same time; events and questions come one after the
// other, and so do calls of the key store. They must return at once, and must not call what waits (`TRIBUTARY_CODE_IN_CALLBACK`); the
// key store is called while the journal is written, by the thread that writes, which may be one of the app's in a call such as
// `tributary_job_save_checkpoint`, and must use neither a job nor a machine. **A callback in C++ must catch what it throws**: an exception that
// leaves it is contained by nobody, the behaviour is undefined, and as a rule the process ends. None is called any more after
// `tributary_close` has returned TRIBUTARY_CODE_OK. Until then `context` and the functions must stay; the structure itself may go as soon as
// `tributary_start` has returned.
typedef struct TributaryCallbacks {
  // Handed to every callback as it is.
  void *context;
  // Tells of an event: its name in snake case, and its fields as a JSON object. Both texts are gone when it returns.
  void (*on_event)(void *context, const char *name, const char *fields);
  // Tells what the device is like, by changing `state`, in which nothing is known; anything but 0 if it cannot, and then nothing is. What is
  // asked of the device is `device_conditions` of the options; by default it charges, nobody uses it, its network is unmetered, and it
  // is not hot. While that does not hold, this is asked again after `ask_again_ms`, and at once after
  // `tributary_conditions_changed`. If it is NULL, the participant works whenever it runs.
  int (*device_state)(void *context, struct TributaryDeviceState *state);
  // Reads a secret of the journal from the device's key store into a buffer of `size` bytes, and returns its length; 0 if
  // none was ever saved under the name, and -1 if it cannot be read. Needs `save_secret`; without both the secrets are in
  // files beside the journal.
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
  // Shows this certificate in the handshake of TLS from now on: the chain in PEM, and its private key in PKCS #8 (DER), which no other
  // server may be shown and nobody may store. Both are gone when it returns. Returns 0; anything else if it cannot, and then the
  // participant ends. Not called with `signed_requests` in the options.
  int (*show_certificate)(void *context, const char *certificate, const uint8_t *key, size_t key_bytes);
} TributaryCallbacks;

// A participant: a number, to be copied freely. Any thread may use it. It stands for the participant from
// `tributary_start` until `tributary_close`; afterwards, and where it is made up, calls return `TRIBUTARY_CODE_CLOSED`.
typedef struct TributaryParticipant {
  // 0 is no participant.
  uint64_t id;
} TributaryParticipant;

// One model to train, or an analysis to give rows for: a number, to be copied freely. Any thread may use it. It stands for the job until that is
// answered (`tributary_job_finish`, `_give_rows`, `_fail`, `_refuse`) or freed (`tributary_job_free`); afterwards calls return
// `TRIBUTARY_CODE_CLOSED`, and **every pointer that was given for the job is gone**. A child that was forked neither ends it nor
// saves a checkpoint of it (`TRIBUTARY_CODE_OTHER_PROCESS`).
typedef struct TributaryJob {
  // 0 is no job.
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

// The numbers of a job that most training functions need; `tributary_job_description` has all of the plan. An app whose training cannot do
// what they ask for refuses the job (`tributary_job_refuse`).
typedef struct TributaryPlan {
  // Of the task, from 1.
  uint32_t round;
  // Passes over the local data; not counted if `steps` is above 0.
  uint32_t epochs;
  // Number of steps; 0 if `epochs` says how many.
  uint32_t steps;
  // Examples in a mini-batch.
  uint32_t batch_size;
  // Of the local optimizer.
  double learning_rate;
  // Of the local optimizer, from 0 to below 1.
  double momentum;
  // L2 penalty.
  double weight_decay;
  // Of FedProx: strength of the pull towards the received model; 0 if there is none.
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
  // 1 if the learning rate changes from step to step, as `schedule` and `warmup` of the plan in `tributary_job_description` say; 0 if it is the
  // same for all steps of the round. What changes it from round to round is in `learning_rate` already.
  int32_t rate_changes;
  // Training ends after so many steps and hands in what it has, even if `steps` or `epochs` ask for more; 0 if there is no such limit.
  uint32_t budget_steps;
  // The same after so many milliseconds, but not before the first step; 0 if there is no such limit.
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
  // 0 is no model.
  uint64_t id;
} TributaryModel;

// Where a model comes from. The pointers belong to the model.
typedef struct TributaryOrigin {
  // Of a personalized model: the round that left it on the device, from 1. 0 of a published one.
  uint32_t round;
  // Of a published model: 0 is what the task began with. 0 of a personalized one.
  uint32_t version;
  // Of a published model: SHA-256 of its file, in hexadecimal. NULL of a personalized one.
  const char *sha256;
  // The task's description of its model as JSON; NULL if it has none.
  const char *architecture;
} TributaryOrigin;

// A participant that the app drives: a number, to be copied freely. `tributary_machine_tick` says what to do next, and
// `tributary_machine_perform` does it on the thread that calls it; it has no thread of its own. Any thread may use it, until
// `tributary_machine_close`; afterwards calls return `TRIBUTARY_CODE_CLOSED`.
typedef struct TributaryMachine {
  // 0 is no machine.
  uint64_t id;
} TributaryMachine;

// What is so at a tick.
typedef struct TributaryCircumstances {
  // Milliseconds on a clock of the app that never jumps, since a moment of its choice.
  uint64_t elapsed_ms;
  // What the device is like, for `device_conditions` of the options; without these it does not count.
  struct TributaryDeviceState device;
  // Number of training examples; `TRIBUTARY_UNKNOWN` if it is as before.
  int64_t examples;
} TributaryCircumstances;

// Trains, when the app performs what a tick said, and on that thread; it answers the job before it returns. Without an answer the round is
// given up, unless `tributary_job_should_pause` and a checkpoint was saved: then it is called again with the same job, and goes on. The
// handle is gone when it has returned.
typedef void (*TributaryTrain)(void *context, struct TributaryJob job);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as text. Belongs to the library, for ever.
const char *tributary_version(void);

// Copies the reason for the last error of a call on this thread into `buffer`; an empty text if there was none.
// `length`, unless NULL, gets the size that the text needs with its NUL; `TRIBUTARY_CODE_TOO_SMALL` if the buffer has less.
enum TributaryCode tributary_last_error(char *buffer,
                                        size_t size,
                                        size_t *length);

// Starts a participant on a thread of its own, and puts its handle into `participant`.
//
// `options` is a JSON object in UTF-8: `server`, `journal`, `ca_pem`, at first `token`, and all else that docs/OPTIONS.md lists, with
// defaults. It is not needed any more when the call returns. `callbacks` may be NULL; see `TributaryCallbacks` for how long what it points
// to must stay. Close what was started with `tributary_close`.
//
// Errors: ARGUMENT, CONFIGURATION, ENROLLMENT, JOURNAL.
enum TributaryCode tributary_start(const char *options,
                                   const struct TributaryCallbacks *callbacks,
                                   struct TributaryParticipant *participant);

// Waits for the next job for at most `limit_ms` milliseconds, and puts its handle into `job`. Threads may ask at the same time;
// each job goes to one of them.
//
// Returns OK; NOTHING if there is none yet: ask again; ENDED once the participant has ended, and then always. Errors: why it
// ended early (ENROLLMENT, JOURNAL, FAILED), CLOSED (also if it is closed meanwhile), IN_CALLBACK.
enum TributaryCode tributary_next(struct TributaryParticipant participant,
                                  uint64_t limit_ms,
                                  struct TributaryJob *job);

// Rests, and sends nothing until `tributary_resume`. A job under way should pause: once it has saved a checkpoint, or in ten seconds, it is
// taken back, and comes again if its round still waits. If it has saved none by then, its round is given up, as is any other whose update is
// not made. Does not wait.
enum TributaryCode tributary_pause(struct TributaryParticipant participant);

// Ends a pause. Does not wait.
enum TributaryCode tributary_resume(struct TributaryParticipant participant);

// Has the participant ask `device_state` now. Does not wait.
enum TributaryCode tributary_conditions_changed(struct TributaryParticipant participant);

// Sets the number of training examples that the coordinator is told of; `tributary_job_finish` sets it, too. Does not wait.
enum TributaryCode tributary_set_examples(struct TributaryParticipant participant,
                                          uint64_t examples);

// Copies the participant's id into `buffer`, as `tributary_last_error` does with its text. NOTHING before it is enrolled.
enum TributaryCode tributary_id(struct TributaryParticipant participant,
                                char *buffer,
                                size_t size,
                                size_t *length);

// Copies what was spent on each private task, from the participant's own ledger, into `buffer` as a JSON array, as
// `tributary_last_error` does with its text.
enum TributaryCode tributary_privacy_spent(struct TributaryParticipant participant,
                                           char *buffer,
                                           size_t size,
                                           size_t *length);

// Copies what was spent on all tasks together, and the limit on it, into `buffer` as a JSON object, as
// `tributary_last_error` does with its text.
enum TributaryCode tributary_privacy_lifetime(struct TributaryParticipant participant,
                                              char *buffer,
                                              size_t size,
                                              size_t *length);

// Copies what the participant refused so far, and why, into `buffer` as a JSON array, the latest last, as `tributary_last_error` does with
// its text: of each of the last fifty reasons the attempt that was refused last (`task`, `round`, `attempt`), `code` (what the coordinator
// was told, or null), `reason` (in words, which stay on the device), `at_ms` (since 1970) and `times`. Earlier processes with this journal
// count.
enum TributaryCode tributary_refusals(struct TributaryParticipant participant,
                                      char *buffer,
                                      size_t size,
                                      size_t *length);

// Copies the condition of the device that holds the participant up now into `buffer`, as `tributary_last_error` does with its text: its
// name (`charging`, `unmetered`, `idle`, `battery`, `thermal` or `data_cap`), a colon, and the same in words. NOTHING if none does.
enum TributaryCode tributary_held_up(struct TributaryParticipant participant,
                                     char *buffer,
                                     size_t size,
                                     size_t *length);

// Puts into `used` what was sent and received.
enum TributaryCode tributary_data_use(struct TributaryParticipant participant, struct TributaryDataUse *used);

// Asks the participant to stop, and returns at once; `tributary_next` says when it has.
enum TributaryCode tributary_stop(struct TributaryParticipant participant);

// Stops the participant, waits for its end for at most `limit_ms` milliseconds, and forgets the handle; a few seconds are
// enough while a request is under way. Jobs that were handed out are overdue afterwards, and still have to be freed.
//
// After OK no callback is called any more. After TIMEOUT a callback does not return: its thread is left behind, and what
// `TributaryCallbacks` points to must stay. Errors: CLOSED, IN_CALLBACK.
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

// Points `values` to the parameters of the model, `count` floats, which may be trained in place. They belong to the job, which
// neither reads nor writes them before it is answered; threads of the app that do both at the same time must agree among
// themselves.
enum TributaryCode tributary_job_parameters(struct TributaryJob job,
                                            float **values,
                                            size_t *count);

// OVERDUE if the round no longer waits for the job: training may stop. OK otherwise. Cheap: call it between batches.
enum TributaryCode tributary_job_check(struct TributaryJob job);

// OK if the training should rest, because the device's conditions do not hold or the app pauses: save a checkpoint then, within ten
// seconds. The job is taken back, and comes again when it goes on, if its round still waits; the round of a job that has never saved one is
// given up. NOTHING if it may go on. Cheap: call it between batches.
enum TributaryCode tributary_job_should_pause(struct TributaryJob job);

// Copies what the training of this job saved last, before it was paused or its process was killed, into `buffer` of `size` bytes;
// NOTHING if it begins. `length`, unless NULL, gets its number of bytes; TOO_SMALL if there is room for fewer.
enum TributaryCode tributary_job_checkpoint(struct TributaryJob job,
                                            uint8_t *buffer,
                                            size_t size,
                                            size_t *length);

// Keeps `count` bytes, the state of the training, so that it goes on from there after a pause, and after its process was killed. They
// are copied, replace the last ones, and go with the round. The journal seals them, once in `checkpoint_every_ms` of the options; what
// was saved in between goes there before the training rests.
//
// Errors: UPDATE (more than four times `max_model_bytes`), OVERDUE (the round no longer waits, or the job was taken back), JOURNAL; the
// last ones are still there, and so is the job. ARGUMENT, CLOSED.
enum TributaryCode tributary_job_save_checkpoint(struct TributaryJob job,
                                                 const uint8_t *state,
                                                 size_t count);

// OK if the last checkpoint in the journal is old enough for a new one; NOTHING if it is not. Cheap: call it between batches.
enum TributaryCode tributary_job_is_checkpoint_due(struct TributaryJob job);

// Hands in the trained model, of at least one example, and ends the job. What leaves the device is clipped, weighted,
// noised and masked as the task prescribes.
//
// `values` are `count` floats in the order of the parameters, which are copied; NULL and 0, or the job's own pointer, if they
// were trained in place. `metrics` may be NULL if `metric_count` is 0. Those that are not of the training itself (`train_…`) count as
// those of the received model, so measure the model that the job begins with; with TRIBUTARY_PURPOSE_OWN they count for nothing, but for
// those of the device's own model (`personal_…`).
//
// Errors: UPDATE (of another length, not finite, no examples) and ARGUMENT, after which **the job is still open**;
// OVERDUE, after which it has ended; CLOSED, or ANSWERED where another thread has just answered it.
enum TributaryCode tributary_job_finish(struct TributaryJob job,
                                        const float *values,
                                        size_t count,
                                        uint64_t examples,
                                        const struct TributaryMetric *metrics,
                                        size_t metric_count);

// Trains the task's ready model (`model.architecture`) as the plan says, and as the job asks beside it, hands in the result and ends the
// job: for apps without a training function. `features` are `rows` rows of `width` numbers, `labels` the class of each row. Waits until
// it is trained.
//
// Errors: UPDATE (the examples do not fit the model, or the task names no ready model; a library that was built without
// the ready models always says so) and ARGUMENT, after which **the job is still open**; OVERDUE: the round no longer waits, or the training
// should pause and has saved a checkpoint. The handle is gone then, nothing was handed in, and a job that was paused comes again, with a handle
// of its own, while its round still waits. CLOSED, or ANSWERED where another thread has just answered it.
enum TributaryCode tributary_job_train(struct TributaryJob job,
                                       const float *features,
                                       const uint32_t *labels,
                                       size_t rows,
                                       size_t width);

// The same with rows that nobody trains on: for a job of the shared model the result then also says what the model that it began with
// is worth on `held_out`, as `loss` and `accuracy`. `held_out` may be NULL. Both may go as soon as the call has returned.
//
// Errors: those of `tributary_job_train`.
enum TributaryCode tributary_job_train_and_measure(struct TributaryJob job,
                                                   const struct TributaryRows *rows,
                                                   const struct TributaryRows *held_out);

// Says that training failed, and ends the job. `reason` stays on the device.
enum TributaryCode tributary_job_fail(struct TributaryJob job, const char *reason);

// Says that this app does not do such jobs, and ends the job. `reason` stays on the device.
enum TributaryCode tributary_job_refuse(struct TributaryJob job, const char *reason);

// Ends a job without an answer, which then counts as failed.
enum TributaryCode tributary_job_free(struct TributaryJob job);

// Puts what the job is for into `purpose`.
enum TributaryCode tributary_job_purpose(struct TributaryJob job, enum TributaryPurpose *purpose);

// Points `values` to the model, `count` floats, that `proximal_mu` of the plan pulls towards; NOTHING if that is the one that the job
// begins with. They belong to the job, and are only to be read. Only for an app whose options say `trains_within`.
enum TributaryCode tributary_job_anchor(struct TributaryJob job,
                                        const float **values,
                                        size_t *count);

// OK if the tensor of this number, from 0, must stay as it is; NOTHING if it is to be trained, or there is none. Only an app whose
// options say `trains_within` gets a job with such a tensor.
enum TributaryCode tributary_job_is_frozen(struct TributaryJob job,
                                           size_t number);

// Points `values` to what must be added to the gradient of every step, `count` floats in the order of the parameters; NOTHING if nothing
// must. They belong to the job, and are only to be read. Only for an app whose options say `trains_within`.
enum TributaryCode tributary_job_correction(struct TributaryJob job,
                                            const float **values,
                                            size_t *count);

// Points `values` to the frozen model, `count` floats, whose adapters the parameters of the job are; NOTHING if they are a model
// themselves. A layer computes with its matrix NAME + `scale` * B * A, where A and B are the job's tensors `NAME.lora_a` and
// `NAME.lora_b`. They belong to the job, and are only to be read. Only for an app whose options say `trains_adapters`.
enum TributaryCode tributary_job_base(struct TributaryJob job,
                                      const float **values,
                                      size_t *count,
                                      float *scale);

// Puts the tensor of the frozen model of this number, from 0, into `tensor`; NOTHING beyond the last, and without such a model.
enum TributaryCode tributary_job_base_tensor(struct TributaryJob job,
                                             size_t number,
                                             struct TributaryTensor *tensor);

// Points `json` to the analysis that the job is, as the JSON object of its task: `kind`, `max_rows`, `columns`, and what else it asks; NOTHING
// if the job trains a model. The text belongs to the job. Only an app whose options say `answers_analyses` gets such a job, which has no
// parameters.
enum TributaryCode tributary_job_analysis(struct TributaryJob job,
                                          const char **json);

// Hands in this device's rows for an analysis, and ends the job. `values` are `rows` rows of `width` numbers, row after row, with the columns
// of the analysis in their order; `targets` is what is to be predicted of each row, and NULL if the analysis predicts nothing. Both are copied.
// The rows stay on the device: what leaves it is what the analysis counts and sums of them, masked as the task prescribes. Give the same rows
// in the same order in each round.
//
// Errors: UPDATE (the rows do not fit the analysis, or have a number that is not finite, or the job trains a model) and ARGUMENT, after which
// **the job is still open**; OVERDUE, after which it has ended; CLOSED, or ANSWERED where another thread has just answered it.
enum TributaryCode tributary_job_give_rows(struct TributaryJob job,
                                           const double *values,
                                           size_t rows,
                                           size_t width,
                                           const double *targets);

// Puts a handle for the model of a task into `model`, for use on this device: its own where the task personalizes; otherwise the published
// version, verified, that the device's last round began with, or the last version once the task is over. NOTHING if there is none yet. It is
// read from the journal, so it needs no network, and outlives the participant; it does not change while the participant goes on. Free it
// with `tributary_model_free`.
//
// Errors: ARGUMENT, JOURNAL, CLOSED, IN_CALLBACK.
enum TributaryCode tributary_model(struct TributaryParticipant participant,
                                   const char *task,
                                   struct TributaryModel *model);

// The same while no participant runs: from the journal that the options name, without a thread and without a network. `options` and
// `callbacks` are those of `tributary_start`; of the callbacks, those for secrets count. A running participant has the journal for
// itself, and is asked with `tributary_model`.
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

// Puts into `metric` a metric of the model, by number, from 0; NOTHING beyond the last. Those of a published model are those of the app's
// answer in the round that began with it, without those of the training (`train_loss`). There is none before that answer, none after one
// that says nothing of the model, as that of `tributary_job_train`, and none of the last version of a task that is over.
enum TributaryCode tributary_model_metric(struct TributaryModel model,
                                          size_t number,
                                          struct TributaryMetric *metric);

// Points `values` to the parameters, `count` floats, flat and row-major. They belong to the model, and are only to be read.
enum TributaryCode tributary_model_parameters(struct TributaryModel model,
                                              const float **values,
                                              size_t *count);

// Computes the scores of each class for each row, before softmax, if the model is one of the SDK's own (`model.architecture`), and
// copies them into `scores`, row after row; `size` is its room in floats. `rows` are `count` numbers, row after row. `length`, unless
// NULL, gets the number of scores; TOO_SMALL if there is room for fewer.
//
// Errors: ARGUMENT (the model is none of the SDK's own, or the rows do not fit; a library that was built without the ready models
// always says so), CLOSED.
enum TributaryCode tributary_model_scores(struct TributaryModel model,
                                          const float *rows,
                                          size_t count,
                                          float *scores,
                                          size_t size,
                                          size_t *length);

// Forgets the model.
enum TributaryCode tributary_model_free(struct TributaryModel model);

// Opens the journal, and puts the handle of a participant that the app drives into `machine`. `options` and `callbacks` are those of
// `tributary_start`, but `device_state` must be NULL, since it comes with each tick; events are told by the thread that ticks. Starts no
// thread, and sends nothing. Close it with `tributary_machine_close`.
//
// Errors: ARGUMENT, CONFIGURATION, ENROLLMENT, JOURNAL.
enum TributaryCode tributary_machine_open(const char *options,
                                          const struct TributaryCallbacks *callbacks,
                                          struct TributaryMachine *machine);

// Says what to do next: puts it into `todo`, and into `until_ms` the moment of WAIT_UNTIL, on the clock of `elapsed_ms`; otherwise 0.
// It neither waits nor starts a thread: it computes for microseconds, beside hashing and writing out what is to be sent. While a
// thread performs what was said, the answer is BUSY, unless the round is left meanwhile: because its time is up, or the conditions have not
// held for ten seconds and no checkpoint was saved.
//
// Returns OK; ENDED once the participant has ended, and then always. Errors: why it ended early (ENROLLMENT, JOURNAL, FAILED), ARGUMENT,
// CLOSED, IN_CALLBACK, OTHER_PROCESS.
enum TributaryCode tributary_machine_tick(struct TributaryMachine machine,
                                          const struct TributaryCircumstances *circumstances,
                                          enum TributaryTodo *todo,
                                          uint64_t *until_ms);

// Does on this thread what the last tick said, and waits for it; then the next tick says how it goes on. `train` is called with `context`
// if it said TRAIN and there is a job. There is none for the last version of a task, which only a trainer in Rust measures: here it has no
// metrics. A training is asked to pause after `training_slice_ms` of the options, which an app that saves checkpoints may do
// (`tributary_job_should_pause`). While it sends or fetches, a helper thread may look up the server's name, or read the model's file.
//
// Returns OK; NOTHING if there was nothing to do that no other thread does. Errors: ARGUMENT, CLOSED, IN_CALLBACK,
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

// The condition of the device that held it up at the last tick, as `tributary_held_up` says it.
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

// Puts into `used` what was sent and received, as of the last tick.
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

// Forgets the machine at once; the journal knows how to go on. The journal is free once no thread performs anything for it.
enum TributaryCode tributary_machine_close(struct TributaryMachine machine);

// The head of the answer, before its body: its status, and `count` headers. Does not wait.
//
// Returns OK; NOTHING if the answer is not wanted any more: the client may cancel the request. Errors: ARGUMENT, CLOSED.
enum TributaryCode tributary_exchange_head(struct TributaryExchange exchange,
                                           uint16_t status,
                                           const struct TributaryHeader *headers,
                                           size_t count);

// The next bytes of the body, which are copied. Waits while more than a megabyte waits to be read, but for a call in a callback.
//
// Returns OK; NOTHING if no more are wanted: the client may cancel the request. Errors: ARGUMENT, CLOSED.
enum TributaryCode tributary_exchange_piece(struct TributaryExchange exchange,
                                            const uint8_t *bytes,
                                            size_t count);

// The answer is complete; the handle is gone. Does not wait.
enum TributaryCode tributary_exchange_end(struct TributaryExchange exchange);

// There is no answer, or no more of it, for a reason that a person can read; the handle is gone. Does not wait.
//
// Errors: ARGUMENT, CLOSED.
enum TributaryCode tributary_exchange_fail(struct TributaryExchange exchange,
                                           const char *reason);

// Whether nobody waits for the answer any more, so that the client may cancel the request: OK if so, NOTHING if not. Does not wait.
enum TributaryCode tributary_exchange_is_over(struct TributaryExchange exchange);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus
