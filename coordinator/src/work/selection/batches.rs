//! Fixed batches in the draw of a cohort, which draws whole batches at random.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use federation::cohort::Candidate;
use federation::id::{Digest, ParticipantId};
use secure_agg::codec::Message as _;
use secure_agg::messages::Advertise;

use crate::rounds::selection::eligible::in_whole_batches;

/// The batch stated by a participant with its keys.
pub(super) fn stated(advertisement: &Bytes) -> Option<Digest> {
    let advertise = Advertise::decode(advertisement).ok()?;
    advertise.body.client_id.batch().map(|batch| Digest(*batch))
}

/// The candidates with keys that their stated batches allow to draw; see [`in_whole_batches`].
pub(in crate::work) fn whole(mut keyed: Vec<(Candidate, Bytes)>, min: u32) -> Vec<(Candidate, Bytes)> {
    let stated: Vec<_> = keyed.iter().map(|(candidate, keys)| (candidate.participant, stated(keys))).collect();
    let drawable = in_whole_batches(&stated, min);
    keyed.retain(|(candidate, _)| drawable.contains(&candidate.participant));
    keyed
}

/// Draws whole batches, and participants without one, until nothing else fits into `count`. Batches are ordered by their first members in
/// `order`.
pub(super) fn draw_whole(
    order: impl IntoIterator<Item = ParticipantId>,
    batch_of: &HashMap<ParticipantId, Digest>,
    count: usize,
) -> Vec<ParticipantId> {
    let mut drawn = Vec::with_capacity(count);
    for unit in units(order, batch_of) {
        if drawn.len() + unit.len() <= count {
            drawn.extend(unit);
        }
    }
    drawn
}

/// Divides a cohort, in this order, into groups of exactly `size` made of whole batches. An incomplete rest is left over.
pub(in crate::work) fn groups(
    order: impl IntoIterator<Item = ParticipantId>,
    batch_of: &HashMap<ParticipantId, Digest>,
    size: usize,
) -> Vec<Vec<ParticipantId>> {
    let mut open: Vec<Vec<ParticipantId>> = Vec::new();
    for unit in units(order, batch_of).into_iter().filter(|unit| unit.len() <= size) {
        match open.iter_mut().find(|group| group.len() + unit.len() <= size) {
            Some(group) => group.extend(unit),
            None => open.push(unit),
        }
    }
    open.retain(|group| group.len() == size);
    open.iter_mut().for_each(|group| group.sort_unstable());
    open
}

/// Batches, and participants without one, ordered by their first members in `order`.
fn units(
    order: impl IntoIterator<Item = ParticipantId>,
    batch_of: &HashMap<ParticipantId, Digest>,
) -> Vec<Vec<ParticipantId>> {
    let mut units: Vec<Vec<_>> = Vec::new();
    let mut at = HashMap::new();
    for participant in order {
        let unit = match batch_of.get(&participant) {
            Some(batch) => *at.entry(*batch).or_insert(units.len()),
            None => units.len(),
        };
        if unit == units.len() {
            units.push(Vec::new());
        }
        units[unit].push(participant);
    }
    units
}

/// Remaining members of a cohort whose batch has lost a member.
pub(in crate::work) fn torn(
    left: &HashSet<ParticipantId>,
    batch_of: &HashMap<ParticipantId, Digest>,
) -> Vec<ParticipantId> {
    let missing: HashSet<_> =
        batch_of.iter().filter(|(member, _)| !left.contains(*member)).map(|(_, batch)| *batch).collect();
    left.iter().filter(|member| batch_of.get(*member).is_some_and(|batch| missing.contains(batch))).copied().collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn who(number: u128) -> ParticipantId {
        ParticipantId(Uuid::from_u128(number))
    }

    /// Participants 0 to 11 in batches of three, 12 and 13 without one.
    fn batch_of() -> HashMap<ParticipantId, Digest> {
        (0..12).map(|number| (who(number), Digest([u8::try_from(number / 3).unwrap(); 32]))).collect()
    }

    #[test]
    fn draws_take_whole_batches() {
        let batch_of = batch_of();
        for count in 0..=14 {
            // 5 and 14 are coprime, so this order differs from that of the batches.
            let order = (0..14).map(|step| who(step * 5 % 14));
            let drawn: HashSet<_> = draw_whole(order, &batch_of, count).into_iter().collect();
            assert!(drawn.len() <= count && torn(&drawn, &batch_of).is_empty(), "{count}: {drawn:?}");
            assert!(drawn.len() + 3 > count, "{count}: {drawn:?}");
        }
    }

    #[test]
    fn groups_consist_of_whole_batches() {
        let batch_of = batch_of();
        let groups = groups((0..12).map(|step| who(step * 5 % 12)), &batch_of, 6);
        assert_eq!(groups.len(), 2);
        for group in groups {
            assert_eq!(group.len(), 6);
            assert!(torn(&group.into_iter().collect(), &batch_of).is_empty());
        }
    }

    #[test]
    fn members_of_torn_batches_are_found() {
        let left: HashSet<_> = (1..14).map(who).collect();
        let mut torn = torn(&left, &batch_of());
        torn.sort_unstable();
        assert_eq!(torn, [who(1), who(2)]);
    }
}
