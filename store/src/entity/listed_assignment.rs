//! Cohorts for lists: a page of places with facts from other tables, in two statements.

use std::collections::{BTreeMap, HashMap};

use federation::id::{Attempt, ParticipantId};
use federation::round::{Assignment, AssignmentState};
use federation::time::Timestamp;

use super::assignment::AssignmentChange;
use crate::driver::{After, FromRow, Row};
use crate::error::Result;
use crate::transaction::Transaction;

/// A place in a cohort.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedAssignment {
    pub assignment: Assignment,
    /// Name of the participant.
    pub name: String,
    /// Size of its admitted input, in bytes, if it has one.
    pub bytes: Option<u64>,
    /// Anomaly score of that, if it has one.
    pub anomaly: Option<f64>,
    /// The states that it entered, oldest first.
    pub history: Vec<AssignmentChange>,
}

/// Which places of a cohort to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignmentFilter {
    /// Only those in one of these states; empty: in any.
    pub states: Vec<AssignmentState>,
    /// Only those of participants that carry all of these.
    pub labels: BTreeMap<String, String>,
}

impl AssignmentFilter {
    fn states(&self) -> &[AssignmentState] {
        if self.states.is_empty() { &AssignmentState::ALL } else { &self.states }
    }
}

impl Transaction<'_> {
    /// The places of an attempt's cohort that match a filter, in the order of participants' ids, after `cursor`.
    pub async fn listed_assignments(
        &mut self,
        attempt: Attempt,
        filter: &AssignmentFilter,
        cursor: Option<ParticipantId>,
        limit: u32,
    ) -> Result<Vec<ListedAssignment>> {
        let mut listed: Vec<ListedAssignment> = self
            .list(
                "SELECT place.*, member.name AS name, input.bytes AS bytes, input.anomaly AS anomaly
                 FROM assignment AS place
                 CROSS JOIN participant AS member ON member.id = place.participant
                 LEFT JOIN admitted AS input
                        ON input.task = place.task AND input.number = place.number AND input.attempt = place.attempt
                       AND input.participant = place.participant
                 WHERE place.task = ?1 AND place.number = ?2 AND place.attempt = ?3 AND place.participant > ?4
                   AND place.state IN {?6 state:text} AND {carries member.labels ?7}
                 ORDER BY place.participant LIMIT ?5",
                (attempt, After(cursor), limit, filter.states(), &filter.labels),
            )
            .await?;
        let participants: Vec<_> = listed.iter().map(|listed| listed.assignment.participant).collect();
        if participants.is_empty() {
            return Ok(listed);
        }
        let changes: Vec<(ParticipantId, AssignmentState, Timestamp, Option<String>)> = self
            .list(
                "SELECT participant, state, at, detail FROM assignment_change
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant IN {?4 participant:bytes}
                 ORDER BY sequence",
                (attempt, &participants),
            )
            .await?;
        let mut histories: HashMap<ParticipantId, Vec<AssignmentChange>> = HashMap::new();
        for (participant, state, at, detail) in changes {
            histories.entry(participant).or_default().push(AssignmentChange { state, at, detail });
        }
        for place in &mut listed {
            place.history = histories.remove(&place.assignment.participant).unwrap_or_default();
        }
        Ok(listed)
    }
}

/// Without the history, which has rows of its own.
impl FromRow for ListedAssignment {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            assignment: Assignment::from_row(row)?,
            name: row.get("name")?,
            bytes: row.get("bytes")?,
            anomaly: row.get("anomaly")?,
            history: Vec::new(),
        })
    }
}
