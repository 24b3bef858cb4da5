//! The demo's federation: a coordinator on a loopback port, its operator, and independent participants, each with its own
//! identity, journal and data. They meet over HTTPS and nowhere else.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use client_sdk::journal::JournalFiles;
use client_sdk::participant::{Event, Outcome as End, Participant};
use client_sdk::train::Device;
use client_sdk::transport::Proxy;
use client_sdk::{ModelTrainer, PrivacyPolicy, SecurityPolicy};
use coordinator::Running;
use coordinator::config::Config;
use datasets::Dataset;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use wire::admin::{CreateEnrollmentToken, EnrollmentTokenReply, Role};
use wire::{Attempt, ParticipantId, route};

use super::attack::Suspect;
use super::dropout::{Dropout, DropoutTransport};
use super::plan::DropPlan;
use crate::command::participant::{build_failure, default_name, failure};
use crate::command::serve;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::server::Server;
use crate::trainer::{Slots, SlottedTrainer, owned};

/// Request rate per peer: all peers are the demo's own.
const RATE: u32 = 1_000_000;

/// Settings of the participants, besides their data.
pub(super) struct Settings {
    pub(super) device: Device,
    pub(super) threads: usize,
    pub(super) drops: DropPlan,
    pub(super) seed: u64,
    /// Whether they require a privacy mechanism.
    pub(super) private: bool,
    /// Number of hostile participants: the first ones.
    pub(super) hostile: u32,
    /// Name of their task.
    pub(super) name: String,
}

/// The federation.
pub(super) struct World {
    pub(super) url: String,
    pub(super) ca: PathBuf,
    pub(super) token: String,
    pub(super) server: Server,
    /// Name of the task.
    pub(super) task: String,
    running: Running,
    participants: JoinSet<Outcome>,
    gate: watch::Sender<bool>,
    /// The latest ended attempt.
    over: watch::Sender<(u32, u32)>,
    stop: watch::Sender<bool>,
}

impl World {
    /// Starts the coordinator with everything in `folder`.
    pub(super) async fn start(folder: &Path) -> Outcome<Self> {
        let config = config(folder)?;
        let running = serve::start(&config).await?;
        let token = running
            .create_operator_token("demo", Role::Admin)
            .await
            .map_err(Failure::because(Exit::Io, "cannot make the operator token"))?
            .token;
        let url = running.url().to_owned();
        let base = url.parse().map_err(Failure::because(Exit::Internal, "the coordinator's URL"))?;
        let server = Server::with_ca(base, Some(running.ca_pem().as_bytes()), token.clone(), &Proxy::none())?;
        Ok(Self {
            url,
            ca: config.identity.ca_certificate_file,
            token,
            server,
            task: String::new(),
            running,
            participants: JoinSet::new(),
            gate: watch::Sender::new(false),
            over: watch::Sender::new((0, 0)),
            stop: watch::Sender::new(false),
        })
    }

    /// Enrols one participant after the other; check-ins begin with [`Self::open`].
    pub(super) async fn enroll(
        &mut self,
        shards: Vec<(Dataset, Dataset)>,
        folder: &Path,
        settings: &Settings,
        output: Output,
    ) -> Outcome {
        self.task.clone_from(&settings.name);
        let slots = Slots::new(settings.threads);
        for (index, (train, held_out)) in (0_u32..).zip(shards) {
            let name = default_name(index);
            let body = CreateEnrollmentToken { name: Some(name.clone()), ..CreateEnrollmentToken::default() };
            let reply: EnrollmentTokenReply = self.server.post(route::ENROLLMENT_TOKENS, &body, None).await?;
            let life = RestartingParticipant {
                index,
                journal: folder.join(&name),
                name,
                task: settings.name.clone(),
                url: self.url.clone(),
                ca_pem: self.running.ca_pem().to_owned(),
                train: Arc::new(owned(train)),
                held_out: Arc::new(owned(held_out)),
                device: settings.device.clone(),
                slots: Arc::clone(&slots),
                drops: settings.drops,
                seed: settings.seed,
                private: settings.private,
                is_hostile: index < settings.hostile,
                gate: self.gate.subscribe(),
                over: self.over.subscribe(),
                stop: self.stop.subscribe(),
                operator: self.server.clone(),
                output,
            };
            let (enrolled, is_enrolled) = oneshot::channel();
            self.participants.spawn(life.live(reply.token, enrolled));
            if is_enrolled.await.is_err() {
                self.check().await?;
            }
        }
        Ok(())
    }

    /// Lets participants check in.
    pub(super) fn open(&self) {
        self.gate.send_replace(true);
    }

    /// Announces that an attempt has ended, so that its dropouts restart.
    pub(super) fn round_over(&self, number: u32, attempt: u32) {
        self.over.send_replace((number, attempt));
    }

    /// Completes with the first participant's failure; otherwise stays pending.
    pub(super) async fn check(&mut self) -> Outcome {
        while let Some(ended) = self.participants.join_next().await {
            ended.map_err(Failure::because(Exit::Internal, "a participant's task ended badly"))??;
        }
        std::future::pending().await
    }

    /// Stops the participants; the coordinator continues.
    pub(super) async fn dismiss(&mut self) {
        self.stop.send_replace(true);
        while self.participants.join_next().await.is_some() {}
    }

    /// Shuts the coordinator down.
    pub(super) async fn shutdown(self) {
        self.running.shutdown().await;
    }
}

/// Configuration of a loopback coordinator with everything in one folder.
fn config(folder: &Path) -> Outcome<Config> {
    let mut config = serve::dev_config(folder)?;
    config.http.listen.set_port(0);
    config.http.participant_rate = RATE;
    config.http.operator_rate = RATE;
    config.http.address_rate = RATE;
    config.http.check_ins_per_second = RATE;
    Ok(config)
}

/// A participant that is restarted after every dropout.
struct RestartingParticipant {
    index: u32,
    name: String,
    task: String,
    journal: PathBuf,
    url: String,
    ca_pem: String,
    train: Arc<client_sdk::Dataset>,
    held_out: Arc<client_sdk::Dataset>,
    device: Device,
    slots: Arc<Slots>,
    drops: DropPlan,
    seed: u64,
    private: bool,
    is_hostile: bool,
    gate: watch::Receiver<bool>,
    over: watch::Receiver<(u32, u32)>,
    stop: watch::Receiver<bool>,
    operator: Server,
    output: Output,
}

impl RestartingParticipant {
    /// Takes part until the task is over; after a dropout, restarts from its journal once that round has ended.
    async fn live(mut self, token: String, enrolled: oneshot::Sender<ParticipantId>) -> Outcome {
        let mut token = Some(token);
        let enrolled = Mutex::new(Some(enrolled));
        let enrolled = Arc::new(enrolled);
        loop {
            let (mut participant, mut vanished) = self.participant(token.take(), Arc::clone(&enrolled))?;
            let mut stop = self.stop.clone();
            let stopped = async {
                // A demo that was dropped has ended, too.
                let _ = stop.wait_for(|stop| *stop).await;
            };
            let gone = tokio::select! {
                result = participant.run(stopped) => match result {
                    Ok(End::TaskOver { .. } | End::Stopped) => return Ok(()),
                    Err(error) => {
                        let failure = failure(&error);
                        return Err(Failure { detail: format!("{}: {}", self.name, failure.detail), ..failure });
                    }
                },
                Some(gone) = has_vanished(&mut vanished) => gone,
            };
            drop(participant);
            self.excuse(gone).await?;
            let place = (gone.place.round, gone.place.attempt);
            if self.over.wait_for(|over| *over >= place).await.is_err() {
                return Ok(());
            }
        }
    }

    fn participant(
        &self,
        token: Option<String>,
        enrolled: Arc<Mutex<Option<oneshot::Sender<ParticipantId>>>>,
    ) -> Outcome<(Participant, watch::Receiver<Option<Dropout>>)> {
        let (transport, vanished) =
            DropoutTransport::new(&self.url, &self.ca_pem, self.drops, self.index, self.gate.clone())
                .map_err(Failure::because(Exit::Internal, "a participant's transport"))?;
        let (train, held_out) = (Arc::clone(&self.train), Arc::clone(&self.held_out));
        let trainer = ModelTrainer::new(train, held_out, self.device.clone());
        let trainer = SlottedTrainer { trainer, slots: Arc::clone(&self.slots) };
        let trainer = Suspect { trainer, is_hostile: self.is_hostile };
        let (name, output) = (self.name.clone(), self.output);
        let mut builder = Participant::builder()
            .transport(transport)
            .ca_pem(&*self.ca_pem)
            .journal(JournalFiles::beside(&self.journal).open().map_err(|error| failure(&error.into()))?)
            .trainer(trainer)
            .name(&self.name)
            .task(&self.task)
            .seed(Some(self.seed))
            .secure_aggregation(SecurityPolicy { required: self.drops.secure, ..SecurityPolicy::lowest() })
            // The device serves only this task, whose plan limits its spending.
            .privacy(PrivacyPolicy { required: self.private, lifetime: None, ..PrivacyPolicy::default() })
            .on_event(move |event| match event {
                Event::Enrolled { participant, .. } => {
                    let sender = enrolled.lock().unwrap_or_else(PoisonError::into_inner).take();
                    // The receiver may be gone.
                    let _ = sender.map(|sender| sender.send(*participant));
                }
                Event::TrainingFailed { error, .. } => output.note(format!("{name}: {error}")),
                Event::Refused { reason, .. } => output.note(format!("{name} takes no part: {reason}")),
                Event::Retry { what, error, .. } => tracing::debug!("{name}: cannot {what}: {error}"),
                _ => {}
            });
        if let Some(token) = token {
            builder = builder.enrollment_token(token);
        }
        builder.build().map(|participant| (participant, vanished)).map_err(|error| build_failure(&error))
    }

    /// Excuses a dropout at the coordinator: the demo knows its dropouts; a real coordinator would wait
    /// for the deadline.
    async fn excuse(&self, gone: Dropout) -> Outcome {
        let Attempt { task, round, .. } = gone.place;
        let path = route::fill(route::EXCUSE, &[&task, &round, &gone.participant]);
        match self.operator.act(&path).await {
            // The round may be over for another reason.
            Err(failure) if matches!(failure.exit, Exit::Conflict | Exit::NotFound) => Ok(()),
            outcome => outcome,
        }
    }
}

async fn has_vanished(vanished: &mut watch::Receiver<Option<Dropout>>) -> Option<Dropout> {
    vanished.wait_for(Option::is_some).await.ok().and_then(|gone| *gone)
}
