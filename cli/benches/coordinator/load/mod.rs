//! Ten thousand enrolled participants that poll at a fixed rate during rounds. Compares PostgreSQL with SQLite, and two
//! coordinators with one.
//!
//! Each polling participant keeps its own TLS connection, since that authenticates it. A coordinator counts two open
//! files for each, so the limit on open files bounds the number of polling participants.

pub(crate) mod crowd;
mod offer;
pub(crate) mod site;
mod tail;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;
use test_servers::postgres::{Cluster, Options};

use self::crowd::Crowd;
use self::offer::{Offered, Polling, offer};
use self::site::Site;
use crate::check_ins::take_turns;
use crate::processor::{self, Quota};
use crate::server::{Device, Server, TASK};
use crate::{Error, Outcome};

const PARAMETERS: usize = 1000;
/// Of rounds by themselves, in which the cohort's polls are held open.
const ROUNDS_ALONE: u32 = 10;
/// More than any measurement sees.
const ROUNDS: u32 = 10_000;
/// Name of the task whose rounds go on under load.
const LOADED: &str = "loaded";
/// Files of a coordinator that are not those of participants' connections.
const FILES_ELSEWHERE: u32 = 2000;

/// Load on the coordinators of a run.
pub(crate) struct Load {
    /// How many are enrolled.
    participants: u32,
    /// Those of them that poll.
    polling: u32,
    /// Polls begun in a second, by all together.
    rate: u32,
    seconds: u32,
    cohort: u32,
    /// Of each coordinator to the database.
    connections: u32,
    /// Percent of a core that each of the replicas may use, in a second comparison of them.
    quota: u32,
}

impl Load {
    /// Reads `name=number`; the rest is as in the goal.
    pub(crate) fn read(asked: &[String]) -> Outcome<Self> {
        let limits = std::fs::read_to_string("/proc/self/limits")?;
        let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let files: u32 = files.split_whitespace().nth(4).unwrap().parse().unwrap_or(u32::MAX);
        let mut load =
            Self { participants: 10_000, polling: 0, rate: 1000, seconds: 60, cohort: 100, connections: 4, quota: 20 };
        for (name, number) in asked.iter().filter_map(|word| word.split_once('=')) {
            let field = match name {
                "participants" => &mut load.participants,
                "polling" => &mut load.polling,
                "rate" => &mut load.rate,
                "seconds" => &mut load.seconds,
                "cohort" => &mut load.cohort,
                "connections" => &mut load.connections,
                "quota" => &mut load.quota,
                _ => return Err(format!("there is no {name} to set").into()),
            };
            *field = number.parse()?;
        }
        if load.polling == 0 {
            load.polling = files.saturating_sub(FILES_ELSEWHERE) / 2;
        }
        load.polling = load.polling.min(load.participants);
        Ok(load)
    }

    fn interval(&self) -> f64 {
        f64::from(self.polling) / f64::from(self.rate)
    }
}

pub(crate) async fn run(asked: &[String]) -> Outcome {
    let load = Load::read(asked)?;
    let begin = Instant::now();
    let crowd = Crowd::new(load.participants)?;
    println!(
        "load: {} enrolled (keys and certificates made in {:.1} s), {} of them poll every {:.1} s, each on a TLS connection of its \
         own that is kept open; {} polls/s, cohorts of {}, {PARAMETERS} parameters, durable commits, {} s",
        load.participants,
        begin.elapsed().as_secs_f64(),
        load.polling,
        load.interval(),
        load.rate,
        load.cohort,
        load.seconds
    );
    let wanted = |name: &str| {
        let named = |word: &String| ["sqlite", "postgres", "replicas"].contains(&word.as_str());
        !asked.iter().any(named) || asked.iter().any(|word| word == name)
    };
    let sqlite = match wanted("sqlite") {
        true => Some(at_rate(&load, &crowd, &Site::on_sqlite(&load, &crowd).await?, "SQLite").await?),
        false => None,
    };
    let cluster = match wanted("postgres") || wanted("replicas") {
        true => {
            let settings = tail::LOGGED.map(|(name, value)| (name.to_owned(), value.to_owned()));
            Cluster::start(Options { fsync: true, settings: settings.to_vec(), ..Options::default() })
        }
        false => None,
    };
    let Some(cluster) = cluster else { return Ok(()) };
    if wanted("postgres") {
        let site = Site::on_postgres(&load, &crowd, &cluster, false).await?;
        let postgres = at_rate(&load, &crowd, &site, "PostgreSQL").await?;
        if let Some(sqlite) = sqlite {
            println!("  a poll on PostgreSQL costs {:.1} × the processor time on SQLite (goal: 3)", postgres / sqlite);
        }
    }
    if wanted("replicas") {
        replicas(&load, &crowd, &cluster, None).await?;
        match Quota::new(load.quota) {
            Some(_) => replicas(&load, &crowd, &cluster, Some(load.quota)).await?,
            None => println!("  SKIPPED: this process may not bound what another uses (control groups)"),
        }
    }
    Ok(())
}

/// Connections of the polling participants, spread over coordinators; each has polled once.
async fn connect(crowd: &Crowd, count: u32, servers: &[Server], task: &'static str) -> Outcome<Vec<Device>> {
    let ready = crowd.identities().take(count as usize).zip(servers.iter().cycle());
    let connect = |(identity, server): (_, &Server)| {
        let device = server.again(identity).map(|device| Device { task, ..device });
        async move {
            let device = device?;
            device.check_in(0).await?;
            Ok(device)
        }
    };
    servers[0].each(ready, connect).await
}

/// Resources and counters up to a moment.
struct Readings {
    at: Instant,
    coordinator: f64,
    database: f64,
    generator: f64,
    counters: BTreeMap<String, u64>,
}

impl Readings {
    async fn take(site: &Site<'_>, servers: &[Server]) -> Outcome<Self> {
        let mut counters = BTreeMap::new();
        let mut coordinator = 0.0;
        for server in servers {
            coordinator += server.cpu_seconds()?;
            for (name, count) in server.counters().await? {
                *counters.entry(name).or_default() += count;
            }
        }
        let (database, generator) = (site.database_seconds()?, processor::seconds(std::process::id())?);
        Ok(Self { at: Instant::now(), coordinator, database, generator, counters })
    }

    fn since(self, before: &Self) -> Used {
        let seconds = (self.at - before.at).as_secs_f64();
        let count = |(name, count): (String, u64)| {
            let earlier = before.counters.get(&name).copied().unwrap_or_default();
            (name, count.saturating_sub(earlier))
        };
        Used {
            seconds,
            coordinator: self.coordinator - before.coordinator,
            database: self.database - before.database,
            generator: self.generator - before.generator,
            counters: self.counters.into_iter().map(count).filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// Resources and counters over the measured time.
struct Used {
    seconds: f64,
    coordinator: f64,
    database: f64,
    generator: f64,
    counters: BTreeMap<String, u64>,
}

impl Used {
    fn count(&self, counter: &str) -> u64 {
        let of = |name: &str| name == counter || name.strip_prefix(counter).is_some_and(|rest| rest.starts_with('{'));
        self.counters.iter().filter(|(name, _)| of(name)).map(|(_, count)| count).sum()
    }

    /// Waits for the database by transaction, most first; empty with SQLite.
    fn waits(&self) -> Vec<(&str, u64)> {
        const BEFORE: &str = "tributary_database_round_trips_total{transaction=\"";
        let ours = self.counters.iter().filter(|(name, _)| name.starts_with(BEFORE));
        let mut waits: Vec<_> =
            ours.map(|(name, count)| (name[BEFORE.len()..].trim_end_matches("\"}"), *count)).collect();
        waits.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        waits
    }

    fn tell_waits(&self, what: &str, of: u64) {
        let waits = self.waits();
        let sum: u64 = waits.iter().map(|(_, count)| count).sum();
        if sum == 0 {
            return;
        }
        let each = |count: u64| count as f64 / of.max(1) as f64;
        let shown: Vec<_> = waits.iter().take(8).map(|(name, count)| format!("{name} {:.3}", each(*count))).collect();
        println!("    waits for the database per {what}: {:.2}; {}", each(sum), shown.join(", "));
    }

    /// Prints how long transactions waited for a connection to the database; silent with SQLite.
    fn tell_connections(&self) {
        const NAME: &str = "tributary_database_connection_wait_seconds";
        let all = self.count(&format!("{NAME}_count"));
        let within = |seconds: &str| self.counters.get(&format!("{NAME}_bucket{{le=\"{seconds}\"}}"));
        let over = |seconds: &str| all.saturating_sub(within(seconds).copied().unwrap_or_default());
        if all > 0 {
            let percent = |count: u64| count as f64 / all as f64 * 100.0;
            println!(
                "    of {all} transactions {:.2} % waited more than 1 ms for a connection, {:.2} % more than 10 ms, {:.2} % more \
                 than 50 ms",
                percent(over("0.001")),
                percent(over("0.01")),
                percent(over("0.05"))
            );
        }
    }

    fn tell_shares(&self) {
        let share = |used: f64| used / self.seconds * 100.0;
        println!(
            "    of a core: coordinator {:.0} %, database {:.0} %, generator {:.0} %",
            share(self.coordinator),
            share(self.database),
            share(self.generator)
        );
    }
}

/// One coordinator under the load; processor time of a poll, rounds included, in microseconds.
async fn at_rate(load: &Load, crowd: &Crowd, site: &Site<'_>, name: &str) -> Outcome<f64> {
    let servers = [site.serve()?];
    let [server] = &servers;
    rounds_alone(load, crowd, site, &servers, name).await?;
    server.create_task_named(LOADED, PARAMETERS, load.cohort, ROUNDS).await?;
    let devices = connect(crowd, load.polling, &servers, LOADED).await?;
    let polling: Arc<[Polling]> = devices.into_iter().map(Polling::from).collect();
    // Participants that were drawn while the others came take part; then all are in step.
    offer(load.rate, load.polling, &polling, PARAMETERS).await?;
    let rounds = server.completed(LOADED).await?;
    let before = Readings::take(site, &servers).await?;
    let began = tail::now()?;
    let offered = offer(load.rate, load.rate * load.seconds, &polling, PARAMETERS).await?;
    let used = Readings::take(site, &servers).await?.since(&before);
    let polls = used.count("tributary_polls_total");
    let microseconds = |used: f64| used / polls as f64 * 1e6;
    println!("  {name}: {:.0} polls/s answered, {} failed", polls as f64 / used.seconds, offered.failed);
    tell_latencies(&offered);
    tail::tell(&offered, began, &site.log()?);
    println!(
        "    processor time of a poll, rounds included: {:.0} µs of the coordinator, {:.0} µs of the database",
        microseconds(used.coordinator),
        microseconds(used.database)
    );
    used.tell_shares();
    let (ended, cycles) = (server.completed(LOADED).await? - rounds, server.cycles(LOADED).await?);
    let median = cycles.get(cycles.len() / 2).map_or(f64::NAN, |cycle| *cycle as f64 / 1e3);
    println!(
        "    {ended} rounds, {} inputs; median {median:.1} s from one model version to the next: all of a cohort have polled after \
         {:.1} s",
        used.count("tributary_masked_inputs_total"),
        load.interval()
    );
    used.tell_waits("poll", polls);
    used.tell_connections();
    match offered.failed {
        0 => Ok(microseconds(used.coordinator + used.database)),
        failed => Err(format!("{failed} polls or updates failed on {name}").into()),
    }
}

fn tell_latencies(offered: &Offered) {
    let mut latencies: Vec<_> = offered.polls.iter().map(|poll| poll.latency).collect();
    latencies.sort_unstable();
    let at = |permille: usize| {
        let index = (latencies.len() * permille / 1000).min(latencies.len().saturating_sub(1));
        latencies.get(index).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
    };
    println!(
        "    from the intended start to the answer: p50 {:.1} ms, p99 {:.1} ms (goal: 100), max {:.1} ms",
        at(500),
        at(990),
        at(1000)
    );
    if let Some(error) = &offered.first_error {
        println!("    the first failure: {error}");
    }
}

/// Rounds of participants whose polls are held open, without other load.
async fn rounds_alone(load: &Load, crowd: &Crowd, site: &Site<'_>, servers: &[Server], name: &str) -> Outcome {
    let devices = connect(crowd, load.cohort, servers, TASK).await?;
    let before = Readings::take(site, servers).await?;
    servers[0].create_task(PARAMETERS, load.cohort, ROUNDS_ALONE).await?;
    try_join_all(devices.iter().map(|device| device.take_part(PARAMETERS))).await?;
    let used = Readings::take(site, servers).await?.since(&before);
    let inputs = u64::from(ROUNDS_ALONE * load.cohort);
    let (cycles, each) = (servers[0].cycles(TASK).await?, |used: f64| used / inputs as f64 * 1e6);
    println!(
        "  {name}, rounds alone, polls held open: median {} ms from one model version to the next; an input {:.0} µs of the \
         coordinator, {:.0} µs of the database; {:.1} polls an input",
        cycles[cycles.len() / 2],
        each(used.coordinator),
        each(used.database),
        used.count("tributary_polls_total") as f64 / inputs as f64
    );
    used.tell_waits("input", inputs);
    Ok(())
}

/// How many polls one coordinator answers, and two on the same rows and blobs.
async fn replicas(load: &Load, crowd: &Crowd, cluster: &Cluster, quota: Option<u32>) -> Outcome {
    let site = Site::on_postgres(load, crowd, cluster, true).await?;
    let (mut servers, mut bounds, mut rates): (Vec<Server>, Vec<Quota>, Vec<f64>) = Default::default();
    // Fewer, since each has to connect twice.
    let count = load.polling.min(2000);
    for _ in 0..2 {
        let server = site.serve()?;
        if servers.is_empty() {
            // Waits for one participant more than exist, so that it draws none of them.
            server.create_task_named(LOADED, PARAMETERS, load.participants + 1, 1).await?;
        }
        servers.push(server);
        let devices = Arc::new(connect(crowd, count, &servers, LOADED).await?);
        if let (Some(quota), Some(server)) = (quota, servers.last()) {
            let bound = Quota::new(quota).ok_or_else(|| Error::from("a control group was refused"))?;
            bound.bound(server.pid())?;
            bounds.push(bound);
        }
        take_turns(&devices, 2).await?;
        let before = Readings::take(&site, &servers).await?;
        let polls = take_turns(&devices, u64::from(load.seconds).div_ceil(4)).await?;
        let used = Readings::take(&site, &servers).await?.since(&before);
        let rate = f64::from(polls) / used.seconds;
        let bounded =
            quota.map_or_else(|| "all of two cores shared".to_owned(), |quota| format!("{quota} % of a core each"));
        println!(
            "  {} of two coordinators, {bounded}, {count} participants: {rate:.0} polls/s, a hundred at a time",
            servers.len()
        );
        used.tell_shares();
        rates.push(rate);
    }
    println!("    two answer {:.2} × as many as one (goal: 1.6 where nothing else is the limit)", rates[1] / rates[0]);
    drop(servers);
    Ok(())
}
