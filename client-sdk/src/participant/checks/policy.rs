//! An app's requirements on secure aggregation.

use secure_agg::params::{Policy, SessionConfig, USUAL_MIN_INCLUDED};
use secure_agg::rejection::Refusal;
use serde::Deserialize;
use task_spec::{MAX_STALENESS, MIN_SECURE_COHORT, USUAL_SECURE_COHORT};
use wire::Digest;
use wire::participant::SessionTerms;

/// Requirements on every session. A participant does not take part in a weaker one.
///
/// The floors only help against a coordinator that cannot invent participants: one that issues certificates can enrol
/// any number and read the update of the only honest member. Then protection depends on the issuer of certificates
/// (docs/THREAT_MODEL.md).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecurityPolicy {
    /// Refuse rounds without secure aggregation, in which the coordinator can read the update. Otherwise the task
    /// decides, so the coordinator chooses its own access; [`crate::participant::Event::Assigned`] reports the choice.
    /// Default: true.
    pub required: bool,
    /// Fewest participants in a cohort, or in one's group of it, at least 3. Default: 10.
    pub min_cohort: u16,
    /// Fraction of the cohort, 0 to 0.5, that may collude with the coordinator without learning another member's
    /// update. With a fraction γ, a cohort of n withstands floor(γn). Default: 0.
    pub min_tolerated_corrupt: f64,
    /// Number of participants that may collude with the coordinator without learning another member's update: floor(γn)
    /// of the smallest cohort that the session allows. Default: 1.
    pub min_tolerated_colluders: u16,
    /// Fewest updates in an opened sum. The threshold, more than half of the session's smallest cohort, may require
    /// more, and always leaves two updates besides those of the tolerated colluders. Default: 3, because each member of
    /// a sum of two computes the other's update.
    pub min_included: u16,
    /// Fewest members of the fixed batch that every member of a session must belong to, this participant included. A
    /// batch's updates are only opened together in sessions that its members joined with the batch. Sums of several
    /// such sessions reveal only sums over at least that many participants. Default: 0, the task decides.
    pub min_batch: u16,
    /// Id of the fixed batch that the app consents to leave, for example because a member is gone for good. Sums over
    /// the difference of the old and the new batch can then be computed from the sums of both (docs/THREAT_MODEL.md).
    /// Any other batch stays. By default all batches stay.
    pub leave_batch: Option<Digest>,
    /// How many versions behind its round an update of any member may start from, for tasks with training ahead of rounds (0 to 1000).
    /// With 0 all members start from the same bytes, as in any other round. With a higher value, members agree on the bytes of each
    /// version, but cannot see each other's starting version. A coordinator could then publish a useless version, have all but one
    /// participant start from it, and read the update of the remaining one. Default: 0.
    pub max_staleness: u32,
    /// Report the loss of the last training, coarsely (32 levels), to tasks that select participants by it, although
    /// updates are hidden. Where the coordinator can read the update, the loss is always reported. Default: false.
    pub tell_loss: bool,
}

impl Default for SecurityPolicy {
    fn default() -> Self {
        Self {
            min_cohort: small(USUAL_SECURE_COHORT),
            min_tolerated_colluders: 1,
            min_included: USUAL_MIN_INCLUDED,
            max_staleness: 0,
            ..Self::lowest()
        }
    }
}

/// A floor that an app has set below the default. Reported once, when a participant starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoweredFloor {
    /// [`SecurityPolicy::required`].
    Required,
    /// [`SecurityPolicy::min_cohort`], to this.
    MinCohort(u16),
    /// [`SecurityPolicy::min_tolerated_colluders`], to this.
    MinToleratedColluders(u16),
    /// [`SecurityPolicy::min_included`], to this number of updates.
    MinIncluded(u16),
    /// [`SecurityPolicy::max_staleness`], to this.
    MaxStaleness(u32),
}

impl std::fmt::Display for LoweredFloor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let usual = SecurityPolicy::default();
        match self {
            Self::Required => write!(f, "takes part where the coordinator can read updates"),
            Self::MinCohort(to) => {
                write!(f, "takes part in cohorts of {to}, fewer than the default of {}", usual.min_cohort)
            }
            Self::MinToleratedColluders(to) => {
                let usual = usual.min_tolerated_colluders;
                write!(
                    f,
                    "takes part where {to} colluding participants are tolerated, fewer than the default of {usual}"
                )
            }
            Self::MinIncluded(to) => write!(
                f,
                "takes part in sums of {to} updates, fewer than the default of {}: each member of a sum of two computes \
                 the other's update",
                usual.min_included
            ),
            Self::MaxStaleness(to) => write!(
                f,
                "takes part in sums of updates that started up to {to} versions behind, more than the default of {}",
                usual.max_staleness
            ),
        }
    }
}

/// The task accepts older updates than this participant's policy allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the task takes updates that started up to {asked} versions behind the round, and this participant takes part up to {limit}: \
     nobody sees who started from which"
)]
pub(in crate::participant) struct TooStale {
    asked: u32,
    limit: u32,
}

impl SecurityPolicy {
    /// The minimum that every session satisfies: for tests, demonstrations and simulations in which one party owns all
    /// participants.
    #[must_use]
    pub fn lowest() -> Self {
        Self {
            required: true,
            min_cohort: small(MIN_SECURE_COHORT),
            min_tolerated_corrupt: 0.0,
            min_tolerated_colluders: 0,
            min_included: 0,
            min_batch: 0,
            leave_batch: None,
            max_staleness: MAX_STALENESS,
            tell_loss: false,
        }
    }

    /// Accepts rounds in which the coordinator can read the update.
    #[must_use]
    pub fn optional() -> Self {
        Self { required: false, ..Self::default() }
    }

    /// The reasons why a participant with this policy refuses a task, as text; empty if it accepts. `session`: the
    /// terms of the task's sessions, `None` without secure aggregation; `max_staleness`: how many versions behind
    /// updates may be.
    #[must_use]
    pub fn objections(&self, session: Option<&SessionTerms>, max_staleness: u32) -> Vec<String> {
        let Some(session) = session else {
            let reason = "it is without secure aggregation: the coordinator can read every update";
            return if self.required { vec![reason.to_owned()] } else { Vec::new() };
        };
        let floors = self.floors().objections(&SessionConfig::from(session)).map(|refusal| refusal.to_string());
        let batches = self.objection_to_batches(session).map(|refusal| refusal.to_string());
        let staleness = self.objection_to_staleness(max_staleness).map(|refusal| refusal.to_string());
        floors.chain(batches).chain(staleness).collect()
    }

    /// The floors that are below their defaults.
    #[must_use]
    pub fn lowered(&self) -> Vec<LoweredFloor> {
        let usual = Self::default();
        let &Self { required, min_cohort, min_tolerated_colluders, min_included, max_staleness, .. } = self;
        let lowered = [
            (usual.required && !required, LoweredFloor::Required),
            (min_cohort < usual.min_cohort, LoweredFloor::MinCohort(min_cohort)),
            (
                min_tolerated_colluders < usual.min_tolerated_colluders,
                LoweredFloor::MinToleratedColluders(min_tolerated_colluders),
            ),
            (min_included < usual.min_included, LoweredFloor::MinIncluded(min_included)),
            (max_staleness > usual.max_staleness, LoweredFloor::MaxStaleness(max_staleness)),
        ];
        lowered.into_iter().filter(|(is_lower, _)| *is_lower).map(|(_, lowered)| lowered).collect()
    }

    /// Whether some session could satisfy the numbers.
    pub(in crate::participant) fn is_valid(&self) -> bool {
        (0.0..=0.5).contains(&self.min_tolerated_corrupt)
    }

    /// Whether the task's batches are smaller than this policy allows.
    pub(in crate::participant) fn objection_to_batches(&self, terms: &SessionTerms) -> Option<Refusal> {
        let (offered, floor) = (terms.batch_size, self.min_batch);
        (offered < floor).then(|| Refusal::BelowPolicy {
            limit: "batch_size",
            offered: offered.into(),
            floor: floor.into(),
        })
    }

    pub(in crate::participant) fn objection_to_staleness(&self, asked: u32) -> Option<TooStale> {
        let limit = self.max_staleness;
        (asked > limit).then_some(TooStale { asked, limit })
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "up to 500000 once checked, and saturating before"
    )]
    pub(in crate::participant) fn floors(&self) -> Policy {
        Policy {
            min_cohort: self.min_cohort,
            min_tolerated_corrupt: (self.min_tolerated_corrupt * 1e6).ceil() as u32,
            min_tolerated_colluders: self.min_tolerated_colluders,
            min_included: self.min_included,
        }
    }
}

fn small(cohort: u32) -> u16 {
    u16::try_from(cohort).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(min_cohort: u16, max_corrupt: u32) -> SessionTerms {
        SessionTerms {
            suite: 1,
            min_cohort,
            max_cohort: 100,
            max_corrupt,
            max_dropout: 0,
            min_included: 0,
            words: 10,
            modulus_bits: 32,
            input_bound: 64,
            noise_margin: 0,
            application: Digest([0; 32]),
            batch_size: 0,
        }
    }

    #[test]
    fn the_default_stands_one_colluder_in_every_cohort_that_it_takes() {
        let usual = SecurityPolicy::default();
        assert_eq!(usual.objections(Some(&terms(10, 100_000)), 0), [""; 0]);
        // A victim and two participants of the coordinator's.
        let told = usual.objections(Some(&terms(3, 0)), 0);
        let expected = [
            "min_cohort is 3, and this participant takes part from 10 on",
            "tolerated_colluders is 0, and this participant takes part from 1 on",
            "min_included is 2, and this participant takes part from 3 on",
        ];
        assert_eq!(told, expected);
        // One of ten is 0.1; a little less rounds to zero members.
        assert_eq!(usual.objections(Some(&terms(10, 99_999)), 0), expected[1..2]);
        assert_eq!(usual.objections(Some(&terms(11, 99_999)), 0), [""; 0]);
        assert!(usual.objections(Some(&terms(10, 100_000)), 1)[0].contains("up to 1 versions behind"));
        assert!(usual.objections(None, 0)[0].contains("can read every update"));
        assert_eq!(SecurityPolicy::optional().objections(None, 1000), [""; 0]);
        assert_eq!(SecurityPolicy::lowest().objections(Some(&terms(3, 0)), 1000), [""; 0]);
        let batched = SecurityPolicy { min_batch: 4, ..usual };
        let small = SessionTerms { batch_size: 3, ..terms(10, 100_000) };
        let expected = ["batch_size is 3, and this participant takes part from 4 on"];
        assert_eq!(batched.objections(Some(&small), 0), expected);
        assert_eq!(batched.objections(Some(&SessionTerms { batch_size: 4, ..small }), 0), [""; 0]);
    }

    #[test]
    fn three_sites_need_all_three_updates() {
        let sites = SecurityPolicy { min_cohort: 3, min_tolerated_colluders: 0, ..SecurityPolicy::default() };
        let of_two = SessionTerms { max_cohort: 3, ..terms(3, 0) };
        let expected = ["min_included is 2, and this participant takes part from 3 on"];
        assert_eq!(sites.objections(Some(&of_two), 0), expected);
        assert_eq!(sites.objections(Some(&SessionTerms { min_included: 3, ..of_two.clone() }), 0), [""; 0]);
        let lower = SecurityPolicy { min_included: 2, ..sites };
        assert_eq!(lower.objections(Some(&of_two), 0), [""; 0]);
        assert!(lower.lowered().contains(&LoweredFloor::MinIncluded(2)));
    }

    #[test]
    fn what_is_lower_than_by_default_is_told() {
        assert_eq!(SecurityPolicy::default().lowered(), []);
        let higher = SecurityPolicy { min_cohort: 11, min_tolerated_colluders: 2, ..SecurityPolicy::default() };
        assert_eq!(higher.lowered(), []);
        let lowest = SecurityPolicy { required: false, ..SecurityPolicy::lowest() };
        let lowered = [
            LoweredFloor::Required,
            LoweredFloor::MinCohort(3),
            LoweredFloor::MinToleratedColluders(0),
            LoweredFloor::MinIncluded(0),
            LoweredFloor::MaxStaleness(1000),
        ];
        assert_eq!(lowest.lowered(), lowered);
        assert_eq!(lowered[1].to_string(), "takes part in cohorts of 3, fewer than the default of 10");
    }
}
