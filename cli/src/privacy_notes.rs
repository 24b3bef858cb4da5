//! Notes for operators on a private task before it starts: the participations that the SDK's defaults allow, and the
//! strength of its promise.

use client_sdk::Lifetime;
use learning::privacy::{PlanError, PlanRequest, promise_warnings};
use recipe::TaskModel;
use recipe::server::PrivateTask;
use serde::Serialize;
use task_spec::TaskSpec;
use wire::grammar::counted;

use crate::output::{figure, number};

/// Advice about a task that has stopped for its budget.
pub(crate) const BUDGET_ADVICE: &str = "Another round would spend more than the privacy budget, so none opens. The last model stays as it is. To go on \
     learning from the same participants is to promise them less: create a new task, with a larger epsilon, from the last model; or \
     cancel this one.";

/// The participations in a task that the SDK's default lifetime limit allows a device that takes part only in this one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct LifetimeRoom {
    /// Epsilon of the lifetime limit ([`Lifetime::default`]).
    epsilon: f64,
    delta: f64,
    /// Participations whose cost, by the device's own account, is within the limit; at most those that the task plans.
    allowed: u32,
    /// Participations of a device that is always there, on average.
    expected: f64,
    /// Maximum number of participations of one device.
    most: u32,
}

impl LifetimeRoom {
    /// For a planned task with this noise.
    pub(crate) fn of(request: &PlanRequest, noise_multiplier: f64) -> Result<Self, PlanError> {
        let Lifetime { epsilon, delta } = Lifetime::default();
        Ok(Self {
            epsilon,
            delta,
            allowed: request.participations_within(noise_multiplier, epsilon, delta)?,
            expected: request.expected_participations(),
            most: request.most_participations(),
        })
    }

    /// Whether devices stop before they have taken part as often as is expected of them.
    fn starves(&self) -> bool {
        f64::from(self.allowed) + 0.5 < self.expected
    }

    /// The room in a few words.
    pub(crate) fn short(&self) -> String {
        format!("devices allow {}, {} expected", self.allowed, figure(self.expected))
    }

    /// The room in words.
    pub(crate) fn words(&self) -> String {
        let Self { epsilon, delta, allowed, expected, most } = *self;
        let limit =
            format!("The SDK's default lifetime limit of a device (epsilon {} at delta {delta:e})", figure(epsilon));
        let allowed = counted(allowed, "participation", "participations");
        if self.starves() {
            format!(
                "{limit} allows {allowed} in this task; {} are expected of each.\n\
                 warning: devices at the default stop before the task is done, and it pauses when too few are left. Plan for more \
                 noise or fewer participations, or have apps allow more (PrivacyPolicy::lifetime, --lifetime-epsilon).",
                figure(expected)
            )
        } else {
            format!(
                "{limit} allows {allowed} in this task, of {} at most; {} are expected of each.",
                number(most.into()),
                figure(expected)
            )
        }
    }
}

/// Notes about a task that a coordinator accepts; empty without a mechanism.
pub(crate) fn privacy_notes(spec: &TaskSpec) -> Vec<String> {
    with_private(spec, notes)
}

/// The warnings alone: for participants that live for one task, without a lifetime limit.
pub(crate) fn weak_promise(spec: &TaskSpec) -> Vec<String> {
    with_private(spec, promised)
}

fn with_private(spec: &TaskSpec, notes: fn(&TaskSpec, &PrivateTask) -> Vec<String>) -> Vec<String> {
    let mut spec = spec.clone();
    // A task that the coordinator would reject gets no notes.
    match TaskModel::complete(&mut spec).and_then(|()| TaskModel::new(&spec)) {
        Ok(TaskModel { private: Some(private), .. }) => notes(&spec, &private),
        Ok(TaskModel { private: None, .. }) | Err(_) => Vec::new(),
    }
}

fn notes(spec: &TaskSpec, private: &PrivateTask) -> Vec<String> {
    let request = &private.quantizer.request;
    let noise = spec.privacy.noise_multiplier.unwrap_or_default();
    let mut notes: Vec<_> = promised(spec, private).into_iter().map(|warning| format!("warning: {warning}")).collect();
    // The frequency of draws of one device depends on the population.
    if spec.privacy.population.is_some() {
        notes.extend(LifetimeRoom::of(request, noise).ok().map(|room| room.words()));
    }
    if let Some(turns) = request.turns().filter(|_| spec.privacy.population.is_none()) {
        notes.push(format!(
            "{} of {} participants take at least {} enrolled participants, since each takes part only so often",
            counted(turns.rounds, "round", "rounds"),
            number(turns.cohort.into()),
            number(turns.least_population())
        ));
    }
    notes
}

/// Warnings about the epsilon of all rounds, where a budget does not end the task before, and about delta.
fn promised(spec: &TaskSpec, private: &PrivateTask) -> Vec<String> {
    let (privacy, request) = (&spec.privacy, &private.quantizer.request);
    let planned = privacy.noise_multiplier.and_then(|noise| request.curve(noise, 1).ok());
    let planned = planned.and_then(|points| points.last().map(|(_, epsilons)| epsilons.against(privacy.against)));
    let epsilon = match (privacy.epsilon, planned) {
        (Some(budget), Some(planned)) => budget.min(planned),
        (Some(epsilon), None) | (None, Some(epsilon)) => epsilon,
        (None, None) => return Vec::new(),
    };
    promise_warnings(epsilon, request.delta, privacy.population)
}
