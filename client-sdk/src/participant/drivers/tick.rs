//! A participant that its caller drives: one step at a time, without threads or a runtime of the SDK's.

use std::time::Duration;

use wire::Attributes;

use crate::clock::Now;
use crate::conditions::{DeviceState, Readiness};
use crate::participant::machine::Machine;
use crate::participant::states::action::{Action, Input};
use crate::transport::Traffic;

/// Input of a tick.
#[derive(Clone, Debug)]
pub struct Circumstances {
    pub now: Now,
    /// Whether the app lets the participant work.
    pub readiness: Readiness,
    /// For the policy of [`Builder::device_conditions`](crate::participant::Builder::device_conditions).
    pub device: DeviceState,
    /// Attributes that tasks' criteria may refer to.
    pub attributes: Attributes,
    /// Number of training examples; `None` as before.
    pub examples: Option<u64>,
    /// Shortest round trip of the connection that was measured; `None` as before. Deadlines are that much earlier.
    pub round_trip: Option<Duration>,
    /// Bytes sent and received since the last tick.
    pub traffic: Traffic,
}

impl Circumstances {
    /// Only the time is given, and work is allowed.
    #[must_use]
    pub fn at(now: Now) -> Self {
        Self {
            now,
            readiness: Readiness::Ready,
            device: DeviceState::default(),
            attributes: Attributes::new(),
            examples: None,
            round_trip: None,
            traffic: Traffic::default(),
        }
    }
}

impl Machine {
    /// Takes the result of the last action, and returns the next one: send, fetch, train, evaluate, load, persist, wait
    /// until a moment, or finished. It computes for microseconds, plus the time to hash and encode outgoing data. It
    /// returns without waiting or starting a thread. The caller performs the action, in its own time and thread, and
    /// passes the result to the next tick:
    ///
    /// | [`Action`] | what to do | [`Input`] |
    /// |---|---|---|
    /// | `Send` | [`HttpRequest::of`](crate::transport::HttpRequest::of), any HTTP client, [`HttpRequest::read`](crate::transport::HttpRequest::read) | `Response` |
    /// | `Fetch` | [`contract::model`](crate::transport::contract::model), append the body to `have` | `Fetched` |
    /// | `Train` | [`RoundWork::run_in`](crate::participant::machine::RoundWork::run_in) on any thread; with a slice where it must not take long | `Trained` |
    /// | `Evaluate` | [`LastVersion::evaluate`](crate::participant::machine::LastVersion::evaluate) on any thread | `Evaluated` |
    /// | `Load`, `Persist` | the journal; a record is durable before its result is handed in. If a training was left while it ran, [`RoundWork::settle`](crate::participant::machine::RoundWork::settle) first | `Loaded`, `Persisted` |
    /// | `WaitUntil` | nothing before that moment | `Tick` |
    /// | `Finished` | nothing any more | |
    ///
    /// A tick with [`Input::Tick`] before the result is there repeats the action, unless its round is left: see
    /// [`Self::deadline`]. [`Self::presented`] is the certificate to show in the handshake. A machine that was dropped
    /// at any moment is rebuilt from the journal, and repeats the same action.
    /// [`Participant`](crate::participant::Participant) is the SDK's driver of this kind.
    ///
    /// A whole round, with a coordinator of a few lines in place of the network:
    ///
    /// ```
    /// use client_sdk::clock::Now;
    /// use client_sdk::journal::{Journal, MemoryJournal};
    /// use client_sdk::participant::machine::{Action, Circumstances, Input, Surroundings};
    /// use client_sdk::transport::{Request, Response};
    /// use client_sdk::{Model, Participant, SecurityPolicy};
    /// # use std::{sync::Arc, time::Duration};
    /// # use client_sdk::learning::{Layout, MetricValue, Parameters, TensorSpec, checkpoint};
    /// # use client_sdk::{Trained, Trainer, TrainerError, TrainingJob};
    /// # use wire::{Timestamp, participant::{Assignment, CheckInReply, EnrollReply, Receipt}};
    /// #
    /// # struct Adds(f32);
    /// # impl Trainer for Adds {
    /// #     fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
    /// #         let mut parameters = model.clone();
    /// #         parameters.values_mut().iter_mut().for_each(|value| *value += self.0);
    /// #         Ok(Trained { parameters, examples: 7, metrics: vec![] })
    /// #     }
    /// #     fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
    /// #         Ok(vec![])
    /// #     }
    /// #     fn examples(&self) -> u64 {
    /// #         7
    /// #     }
    /// # }
    /// #
    /// # struct Coordinator { ca: rcgen::Issuer<'static, rcgen::KeyPair>, task: wire::TaskId, file: Vec<u8>, received: Vec<u8> }
    /// # impl Coordinator {
    /// #     fn answer(&mut self, request: Request) -> Response {
    /// #         match request {
    /// #             Request::Enroll(request) => {
    /// #                 let csr = request.csr_pem.unwrap();
    /// #                 let mut csr = rcgen::CertificateSigningRequestParams::from_pem(&csr).unwrap();
    /// #                 let participant = "00000000-0000-0000-0000-00000000000b";
    /// #                 let urn = format!("urn:tributary:participant:{participant}");
    /// #                 csr.params.subject_alt_names = vec![rcgen::SanType::URI(urn.as_str().try_into().unwrap())];
    /// #                 let certificate_pem = csr.signed_by(&self.ca).unwrap().pem();
    /// #                 let forever = Timestamp(i64::MAX);
    /// #                 let participant = participant.parse().unwrap();
    /// #                 Response::Enrolled(Ok(EnrollReply {
    /// #                     participant, name: "phone".into(), certificate_pem, expires_at: forever, renew_at: forever,
    /// #                 }))
    /// #             }
    /// #             Request::CheckIn(_) if !self.received.is_empty() => {
    /// #                 Response::CheckedIn(Ok(CheckInReply::TaskOver { task: self.task, model: None }))
    /// #             }
    /// #             Request::CheckIn(_) => Response::CheckedIn(Ok(CheckInReply::Assigned(Box::new(self.assignment())))),
    /// #             Request::Upload(upload) => {
    /// #                 self.received = upload.body.to_vec();
    /// #                 let bytes = upload.body.len() as u64;
    /// #                 Response::Uploaded(Ok(Receipt { sha256: upload.sha256, bytes, accepted_at: Timestamp(0) }))
    /// #             }
    /// #             _ => panic!("it says something else"),
    /// #         }
    /// #     }
    /// #     fn assignment(&self) -> Assignment {
    /// #         let sha256 = recipe::digest::sha256(&self.file);
    /// #         serde_json::from_value(serde_json::json!({
    /// #             "task": self.task, "task_name": "digits", "round": 1, "attempt": 1, "cohort": 1, "metrics": [],
    /// #             "model": { "tensors": [{ "name": "w", "shape": [3], "init": "zeros" }] },
    /// #             "base": { "version": 0, "sha256": sha256, "bytes": self.file.len() },
    /// #             "training": client_sdk::task_spec::TrainingPlan::default(),
    /// #             "encoding": { "modulus_bits": 32, "clip_range": 1.0, "max_weight": 100, "max_cohort": 10 },
    /// #             "deadline_at": 0, "remaining_ms": 600_000,
    /// #         })).unwrap()
    /// #     }
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
    /// # let mut params = rcgen::CertificateParams::new(vec![])?;
    /// # params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    /// # let ca_pem = params.self_signed(&key)?.pem();
    /// # let ca = rcgen::Issuer::new(params, key);
    /// # let tensor = TensorSpec { name: "w".into(), shape: vec![3] };
    /// # let file = checkpoint::write(&Parameters::zeros(Arc::new(Layout::new(vec![tensor])?)))?;
    /// # let task = "00000000-0000-0000-0000-000000000001".parse()?;
    /// # let mut coordinator = Coordinator { ca, task, file, received: vec![] };
    /// # let mut trainer = Adds(0.5);
    /// let journal = Arc::new(MemoryJournal::new());
    /// let mut machine = Participant::builder()
    ///     .journal(Arc::clone(&journal))
    ///     .members_ca_pem(ca_pem)
    ///     .enrollment_token("one-time-token")
    ///     .secure_aggregation(SecurityPolicy::optional())
    ///     .build_machine()?;
    /// let mut now = Now { elapsed: Duration::ZERO, wall: Timestamp(0) };
    /// let mut input = Input::Tick;
    /// let outcome = loop {
    ///     let action = machine.tick(input, Circumstances { examples: Some(7), ..Circumstances::at(now) });
    ///     input = match action {
    ///         Action::Send(request) => Input::Response(coordinator.answer(request)),
    ///         Action::Fetch { mut have, .. } => {
    ///             have.extend_from_slice(&coordinator.file[have.len()..]);
    ///             Input::Fetched { have, result: Ok(()) }
    ///         }
    ///         Action::Train(work) => Input::Trained(work.run_in(&mut trainer, Surroundings::default(), &mut || ())),
    ///         Action::Evaluate(last) => Input::Evaluated(last.evaluate(&mut trainer)),
    ///         Action::Load(name) => Input::Loaded(journal.load(&name)),
    ///         Action::Persist(records) => {
    ///             let save = |record: &client_sdk::participant::machine::Record| journal.save_parts(&record.name, record.parts());
    ///             Input::Persisted(records.iter().try_for_each(save))
    ///         }
    ///         Action::WaitUntil(moment) => {
    ///             now.elapsed = moment; // sleep, or do something else
    ///             Input::Tick
    ///         }
    ///         Action::Finished(outcome) => break outcome?,
    ///     };
    ///     for event in machine.take_events() {
    ///         println!("{}", event.name());
    ///     }
    /// };
    /// # assert_eq!(outcome, client_sdk::Outcome::TaskOver { task });
    /// assert!(!coordinator.received.is_empty());
    /// assert!(Model::load(&*journal, task)?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn tick(&mut self, input: Input, circumstances: Circumstances) -> Action {
        let Circumstances { now, readiness, device, attributes, examples, round_trip, traffic } = circumstances;
        self.set_readiness(readiness);
        self.set_device(device);
        self.set_attributes(attributes);
        self.add_traffic(traffic);
        if let Some(examples) = examples {
            self.set_examples(examples);
        }
        if let Some(least) = round_trip {
            self.set_round_trip(least);
        }
        self.poll(input, now)
    }
}
