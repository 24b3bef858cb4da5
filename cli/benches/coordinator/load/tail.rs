//! When polls were slow, and which statements the database was busy with at the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::offer::Offered;
use crate::Outcome;

/// A poll that took longer is one of the tail.
const SLOW: Duration = Duration::from_millis(50);
/// Maximum distance between slow polls that are attributed to one cause.
const NEAR: Duration = Duration::from_millis(200);
/// At most so many spells of slow polls are printed, those with the most polls first.
const TOLD: usize = 8;
/// Settings of a server that logs statements of at least 20 ms, each with the second since 1970 at which it ended.
pub(super) const LOGGED: [(&str, &str); 2] = [("log_min_duration_statement", "20"), ("log_line_prefix", "%n ")];

/// Seconds since 1970 now.
pub(super) fn now() -> Outcome<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// A time in which polls were slow.
struct Spell {
    from: Duration,
    until: Duration,
    polls: usize,
    longest: Duration,
}

impl Spell {
    /// All of them, in order.
    fn all(offered: &Offered) -> Vec<Self> {
        let mut slow: Vec<_> = offered.polls.iter().filter(|poll| poll.latency > SLOW).collect();
        slow.sort_unstable_by_key(|poll| poll.intended);
        let mut spells: Vec<Self> = Vec::new();
        for poll in slow {
            let until = poll.intended + poll.latency;
            match spells.last_mut().filter(|spell| poll.intended <= spell.until + NEAR) {
                Some(spell) => {
                    spell.until = spell.until.max(until);
                    spell.polls += 1;
                    spell.longest = spell.longest.max(poll.latency);
                }
                None => spells.push(Self { from: poll.intended, until, polls: 1, longest: poll.latency }),
            }
        }
        spells
    }
}

/// A statement that took long, in seconds since 1970.
struct Statement {
    from: f64,
    until: f64,
    text: String,
}

impl Statement {
    /// Those in a server's log.
    fn all(log: &str) -> Vec<Self> {
        let statement = |line: &str| {
            let (at, rest) = line.split_once(' ')?;
            let (ms, rest) = rest.strip_prefix("LOG:  duration: ")?.split_once(" ms")?;
            let (until, ms): (f64, f64) = (at.parse().ok()?, ms.parse().ok()?);
            let text = rest.split_once(": ").map_or(rest, |(_, sql)| sql);
            let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(100).collect();
            Some(Self { from: until - ms / 1e3, until, text })
        };
        log.lines().filter_map(statement).collect()
    }
}

/// Prints the worst spells of polls that began at `began`, next to the log of the database's server.
pub(super) fn tell(offered: &Offered, began: f64, log: &str) {
    let mut spells = Spell::all(offered);
    let slow: usize = spells.iter().map(|spell| spell.polls).sum();
    println!("    {slow} polls took more than {} ms, in {} spells:", SLOW.as_millis(), spells.len());
    let statements = Statement::all(log);
    spells.sort_unstable_by_key(|spell| std::cmp::Reverse(spell.polls));
    for Spell { from, until, polls, longest } in spells.into_iter().take(TOLD) {
        println!(
            "      at {:.1} s for {} ms: {polls} polls, the longest {} ms",
            from.as_secs_f64(),
            (until - from).as_millis(),
            longest.as_millis()
        );
        let (from, until) = (began + from.as_secs_f64(), began + until.as_secs_f64());
        for statement in statements.iter().filter(|known| known.from < until && known.until > from).take(TOLD) {
            println!(
                "        {:.0} ms, begun {:+.0} ms: {}",
                (statement.until - statement.from) * 1e3,
                (statement.from - from) * 1e3,
                statement.text
            );
        }
    }
}
