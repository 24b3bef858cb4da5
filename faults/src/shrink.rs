//! Makes a schedule that fails shorter: as few operations as fail by the same check.

use super::outcome::Check;
use super::schedule::Schedule;

/// The shortest schedule found that still `fails` by `check`, by leaving out ever smaller parts of it (after ddmin,
/// Zeller and Hildebrandt 2002, but going on behind a part that was left out), and then unused coordinators and
/// devices. `fails` is called at most `tries` times.
pub fn shrink<E>(
    schedule: &Schedule,
    check: Check,
    mut tries: u32,
    mut fails: impl FnMut(&Schedule) -> Result<Option<Check>, E>,
) -> Result<Schedule, E> {
    let mut best = schedule.clone();
    let mut still_fails = |candidate: &Schedule| -> Result<bool, E> {
        if tries == 0 {
            return Ok(false);
        }
        tries -= 1;
        Ok(fails(candidate)? == Some(check))
    };
    let mut size = best.operations.len().div_ceil(2).max(1);
    loop {
        let (before, mut begin) = (best.operations.len(), 0);
        while begin < best.operations.len() {
            let end = (begin + size).min(best.operations.len());
            let operations = [&best.operations[..begin], &best.operations[end..]].concat();
            let candidate = Schedule { operations, ..best.clone() };
            if still_fails(&candidate)? {
                best = candidate;
            } else {
                begin = end;
            }
        }
        if size > 1 {
            size = size.div_ceil(2);
        } else if best.operations.len() == before {
            break;
        }
    }
    for fewer in [
        Schedule { coordinators: 1, ..best.clone() },
        Schedule { devices: 3, ..best.clone() },
        Schedule { coordinators: 1, devices: 3, ..best.clone() },
    ] {
        if still_fails(&fewer)? {
            best = fewer;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::schedule::Operation;
    use super::*;

    #[test]
    fn what_is_left_is_what_it_takes() {
        let mut schedule = Schedule::draw(3, Some(super::super::schedule::Profile::Greedy));
        schedule.operations = (0..40).map(|at_ms| Operation::Cancel { at_ms }).collect();
        let needed = [Operation::Cancel { at_ms: 7 }, Operation::Cancel { at_ms: 31 }];
        let mut asked = 0;
        let Ok(shrunk) = shrink(&schedule, Check::Sums, 1000, |candidate| {
            asked += 1;
            let has = |operation: &Operation| candidate.operations.contains(operation);
            Ok::<_, Infallible>(needed.iter().all(has).then_some(Check::Sums))
        });
        assert_eq!(shrunk.operations, needed);
        assert_eq!((shrunk.coordinators, shrunk.devices), (1, 3));
        assert!(asked < 200, "{asked}");
    }

    #[test]
    fn a_schedule_that_fails_by_another_check_is_left_alone() {
        let schedule = Schedule::draw(3, Some(super::super::schedule::Profile::Greedy));
        let Ok(shrunk) = shrink(&schedule, Check::Sums, 1000, |_| Ok::<_, Infallible>(Some(Check::Blobs)));
        assert_eq!(shrunk, schedule);
    }
}
