//! Announcements during a session: recipients, times and long polls.

use std::time::Duration;

use federation::round::RoundState;
use http::Method;
use secure_agg::codec::Message as _;
use secure_agg::messages::{Agreement, Delivery, Roster, Survivors};
use wire::headers::MEDIA_SECURE_AGG;
use wire::participant::Announcement;
use wire::problem::ProblemType;
use wire::{Attempt, route};

use crate::support::secure::World;
use crate::support::{TestCoordinator, small_task};

async fn world(phase: RoundState) -> World {
    let mut world = World::new(4).await;
    world.up_to(1, phase).await;
    world
}

#[tokio::test]
async fn each_is_told_in_its_phase_and_the_same_to_all_but_the_delivery() {
    for (what, same_for_all) in Announcement::ALL.into_iter().zip([true, false, true, true]) {
        let world = world(what.state()).await;
        let mut told = Vec::new();
        for member in &world.members {
            let reply = world.t.get(&member.who, &member.announcement(what, 0)).await;
            assert_eq!(
                (reply.status.as_u16(), &reply.headers["content-type"]),
                (200, &MEDIA_SECURE_AGG.parse().unwrap())
            );
            let caching = reply.headers["cache-control"].to_str().unwrap().to_owned();
            let immutable = "private, max-age=31536000, immutable";
            assert_eq!(caching, if what == Announcement::Roster { immutable } else { "no-store" }, "{what:?}");
            match what {
                Announcement::Roster => assert_eq!(Roster::decode(&reply.body).unwrap().entries.len(), 4),
                Announcement::Delivery => assert_eq!(Delivery::decode(&reply.body).unwrap().sealed.len(), 3),
                Announcement::Survivors => assert_eq!(Survivors::decode(&reply.body).unwrap().survivors.len(), 4),
                Announcement::Agreement => drop(Agreement::decode(&reply.body).unwrap()),
            }
            told.push(reply.body);
        }
        told.dedup();
        assert_eq!(told.len(), if same_for_all { 1 } else { 4 }, "{what:?}");
    }
}

#[tokio::test]
async fn the_roster_is_told_in_every_phase_and_the_others_once_they_are_over_not_any_more() {
    let phases = [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking];
    for phase in phases {
        let world = world(phase).await;
        let member = &world.members[0];
        for what in Announcement::ALL {
            let reply = world.t.get(&member.who, &member.announcement(what, 0)).await;
            match what {
                Announcement::Roster => assert_eq!(reply.status, 200, "{phase}"),
                _ if what.state() == phase => assert_eq!(reply.status, 200, "{what:?} in {phase}"),
                _ if what.state() > phase => assert_eq!((reply.status.as_u16(), reply.body.len()), (204, 0)),
                _ => drop(reply.problem(ProblemType::PhaseClosed)),
            }
        }
    }
}

#[tokio::test]
async fn whoever_waits_is_called_the_moment_it_is_time() {
    for what in [Announcement::Delivery, Announcement::Survivors, Announcement::Agreement] {
        let before = match what {
            Announcement::Delivery => RoundState::Sharing,
            Announcement::Survivors => RoundState::Collecting,
            _ => RoundState::Confirming,
        };
        let mut world = world(before).await;
        world.act(before, |at| at < 3).await;
        let last = world.members.pop().unwrap();
        let (t, first) = (&world.t, &world.members[0]);
        let (mut last, model) = (last, &world.model);
        let path = first.announcement(what, 60_000);
        let wait = t.get(&first.who, &path);
        let finish = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            match before {
                RoundState::Sharing => last.share(t).await,
                RoundState::Collecting => last.send_input(t, model).await,
                _ => last.confirm(t).await,
            }
            t.work().await;
        };
        // A poll without a wake-up would last ten seconds and return nothing.
        let (reply, ()) = tokio::join!(wait, finish);
        assert_eq!(reply.status, 200, "{what:?}");
    }
}

#[tokio::test]
async fn the_roster_may_be_asked_for_before_the_draw_that_makes_it() {
    let mut world = World::new(4).await;
    world.join(|at| at < 3).await;
    let mut last = world.members.pop().unwrap();
    let (t, first) = (&world.t, &world.members[0]);
    let path = |wait_ms| {
        route::announcement(Announcement::Roster, Attempt { task: world.task, round: 1, attempt: 1 }, first.id, wait_ms)
    };
    assert_eq!(t.get(&first.who, &path(0)).await.status, 204, "not yet");
    let path = path(60_000);
    let draw = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        last.join(t).await;
        t.work().await;
    };
    let (reply, ()) = tokio::join!(t.get(&first.who, &path), draw);
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    assert_eq!(Roster::decode(&reply.body).unwrap().entries.len(), 4);
}

#[tokio::test]
async fn whoever_waits_in_vain_is_told_nothing_at_the_end() {
    let world = world(RoundState::Sharing).await;
    let member = &world.members[0];
    for what in [Announcement::Delivery, Announcement::Survivors, Announcement::Agreement] {
        let reply = world.t.get(&member.who, &member.announcement(what, 30)).await;
        assert_eq!((reply.status.as_u16(), reply.body.len()), (204, 0), "{what:?}");
    }
}

#[tokio::test]
async fn whoever_waits_hears_that_the_round_failed() {
    let world = world(RoundState::Sharing).await;
    let member = &world.members[0];
    let path = member.announcement(Announcement::Delivery, 60_000);
    let wait = world.t.get(&member.who, &path);
    let fail = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        world.time_out().await;
    };
    let (reply, ()) = tokio::join!(wait, fail);
    let detail = reply.problem(ProblemType::PhaseClosed);
    assert!(detail.contains("FAILED"), "{detail}");
}

#[tokio::test]
async fn whoever_waits_is_sent_away_when_the_coordinator_shuts_down() {
    let world = world(RoundState::Sharing).await;
    let member = &world.members[0];
    let path = member.announcement(Announcement::Survivors, 60_000);
    let wait = world.t.get(&member.who, &path);
    let stop = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        world.t.inner.stop().await;
    };
    let (reply, ()) = tokio::join!(wait, stop);
    reply.problem(ProblemType::Unavailable);
}

#[tokio::test]
async fn only_the_cohort_is_told() {
    for what in Announcement::ALL {
        let world = world(what.state()).await;
        let (id, stranger) = world.t.enroll("stranger").await;
        let (first, second) = (&world.members[0], &world.members[1]);
        let path = first.announcement(what, 0).replace(&first.id.to_string(), &id.to_string());
        world.t.get(&stranger, &path).await.problem(ProblemType::NotAssigned);
        if what == Announcement::Delivery {
            world.t.get(&second.who, &first.announcement(what, 0)).await.problem(ProblemType::Forbidden);
        }
        world.t.get(&world.t.admin, &first.announcement(what, 0)).await.problem(ProblemType::Unauthenticated);
    }
}

#[tokio::test]
async fn whoever_dealt_nothing_is_delivered_nothing() {
    let mut world = world(RoundState::Sharing).await;
    world.act(RoundState::Sharing, |at| at < 3).await;
    world.time_out().await;
    assert_eq!(world.state(1).await, RoundState::Collecting);
    let silent = &world.members[3];
    let reply = world.t.get(&silent.who, &silent.announcement(Announcement::Delivery, 0)).await;
    reply.problem(ProblemType::NotAssigned);
}

#[tokio::test]
async fn what_there_is_no_session_for_is_not_told() {
    let world = world(RoundState::Sharing).await;
    let member = &world.members[0];
    for what in Announcement::ALL {
        let path = member.announcement(what, 0);
        for (from, to, kind) in [
            ("attempt=1", "attempt=2", ProblemType::NotFound),
            ("rounds/1", "rounds/2", ProblemType::NotFound),
            ("attempt=1", "attempt=first", ProblemType::MalformedRequest),
            ("attempt=1&", "", ProblemType::MalformedRequest),
            ("wait_ms", "wait", ProblemType::MalformedRequest),
        ] {
            world.t.get(&member.who, &path.replace(from, to)).await.problem(kind);
        }
        world.t.call(&member.who, Method::DELETE, &path).await.problem(ProblemType::MethodNotAllowed);
    }
    // The same for a round without secure aggregation.
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1]).await.remove(0);
    for what in Announcement::ALL {
        let path = wire::route::announcement(what, work.attempt_key(), a.0, 0);
        let detail = t.get(&a.1, &path).await.problem(ProblemType::NotFound);
        assert!(detail.contains("no secure aggregation"), "{detail}");
    }
}
