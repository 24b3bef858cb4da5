//! Memory of a session in a coordinator: the session's messages are written to disk, and a separate process plays the coordinator, reading
//! one message at a time as from a store, up to the unmasked sum. The kernel reports its peak.

use std::path::{Path, PathBuf};
use std::process::Command;

use secure_agg::codec::Message;
use secure_agg::mask::{self, MaskPlan, Plane};
use secure_agg::messages::{Advertise, Consistency, MaskedInput, ShareKeys, Unmasking};
use secure_agg::modular::{self, Modulus};
use secure_agg::server::{Admitted, Phase};
use secure_agg::{IdentityKey, Signer as _};

use crate::session_config;
use crate::support::{Dealt, advertised, agreed, answered, cohort, masked, open_round};

/// First argument of the coordinator process.
pub(crate) const ROLE: &str = "--coordinator";

/// Runs a session of `n` with vectors of `words` words, and prints the coordinator's peak.
pub(crate) fn print(n: u16, words: usize) {
    let folder = std::env::temp_dir().join(format!("secure-agg-memory-{}-{n}-{words}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    write_session(&folder, n);
    let program = std::env::current_exe().unwrap();
    let output =
        Command::new(program).args([ROLE, folder.to_str().unwrap(), &n.to_string(), &words.to_string()]).output();
    std::fs::remove_dir_all(&folder).unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    print!("{}", String::from_utf8_lossy(&output.stdout));
}

fn file(folder: &Path, kind: &str, index: u16) -> PathBuf {
    folder.join(format!("{kind}-{index}"))
}

/// Plays all participants. The vectors are short here, since a coordinator streams them.
fn write_session(folder: &Path, n: u16) {
    let keep = |kind: &str, index: u16, bytes: &[u8]| std::fs::write(file(folder, kind, index), bytes).unwrap();
    let (mut world, mut members) = cohort(n, session_config(n), 1);
    let phase = advertised(&mut world, &mut members);
    for ((index, member), entry) in (1..).zip(&members).zip(phase.roster().entries.iter()) {
        keep("identity", index, &member.signer.identity().0);
        keep("advertise", index, &entry.advertise(&world.round).encode());
    }
    let mut dealt = Dealt::new();
    for (index, member) in (1..).zip(&mut members) {
        let shares = member.share(&mut world, phase.roster()).unwrap();
        keep("share", index, &shares.encode());
        dealt.insert(index, phase.admit(shares).unwrap().into_message());
    }
    let phase = phase.close(dealt.values().cloned().map(Admitted::from_store).collect()).unwrap();
    let (phase, uploads) = masked(phase, &dealt, &mut members, |index| index % 10 != 5);
    uploads.iter().for_each(|(index, upload)| keep("input", *index, &upload.message.encode()));
    let phase = agreed(phase, &mut members);
    for one in phase.agreement().signatures.iter() {
        let message = Consistency { sid: *phase.sid(), sender: one.signer, signature: one.signature };
        keep("sign", one.signer, &message.encode());
    }
    for answer in answered(&phase, &mut members) {
        keep("answer", answer.message().body.sender, &answer.message().encode());
    }
}

/// The coordinator's process; its arguments come from [`print`].
pub(crate) fn coordinate(arguments: &[String]) {
    let [folder, n, words] = arguments else { panic!("folder, participants and words") };
    let (folder, n, words) = (Path::new(folder), n.parse::<u16>().unwrap(), words.parse::<usize>().unwrap());
    let before = peak();
    let (mut world, _) = cohort(0, session_config(n), 1);
    let adverts: Vec<Advertise> = all(folder, "advertise", n).collect();
    for (index, advert) in (1..).zip(&adverts) {
        let key = std::fs::read(file(folder, "identity", index)).unwrap().try_into().unwrap();
        world.registry.0.insert(advert.body.client_id.as_slice().to_vec(), IdentityKey(key));
    }
    let phase = open_round(&world);
    let admitted = adverts.into_iter().map(|one| phase.admit(one, &world.registry).unwrap()).collect();
    let phase = phase.close(admitted).unwrap();
    let admitted = all::<ShareKeys>(folder, "share", n).map(|one| phase.admit(one).unwrap()).collect();
    let phase = phase.close(admitted).unwrap();
    let dealing = peak();
    let admitted = all::<MaskedInput>(folder, "input", n).map(|one| phase.admit(one).unwrap()).collect();
    let phase = phase.close(admitted).unwrap();
    let Ok(Phase::CollectConsistency(phase)) = Phase::restore(&Phase::CollectConsistency(phase).encode()) else {
        panic!("another phase")
    };
    let admitted = all::<Consistency>(folder, "sign", n).map(|one| phase.admit(one).unwrap()).collect();
    let phase = phase.close(admitted).unwrap();
    let admitted = all::<Unmasking>(folder, "answer", n).map(|one| phase.admit(one).unwrap()).collect();
    let unmasked = phase.close(admitted).unwrap();
    let mut sum = vec![0u32; words];
    let mut piece = vec![0u32; words.min(1 << 18)];
    for index in unmasked.survivors().iter() {
        for part in sum.chunks_mut(1 << 18) {
            piece.fill(u32::from(index));
            modular::add_assign(part, &piece[..part.len()]);
        }
    }
    let short = unmasked.plan(Plane::Model).unwrap();
    let mut plan = MaskPlan::new(Plane::Model, words as u64, Modulus::WORD).unwrap();
    for (seed, sign) in short.masks() {
        plan.push(mask::MaskSeed::new(&mut { *seed.expose() }), sign);
    }
    // The first words suffice; the memory is the same for all.
    mask::apply(&plan, 0, &mut sum[..words.min(1000)]).unwrap();
    println!(
        "  coordinator's memory, n = {n}, d = {words}: {:.1} MB at the start, {:.1} when the shares are in, {:.1} at the peak \
         (shares {:.1} MB, one vector {:.1} MB, all vectors {:.0} MB)",
        mega(before),
        mega(dealing),
        mega(peak()),
        mega(u64::from(n) * u64::from(n) * 80),
        mega(4 * words as u64),
        mega(4 * words as u64 * u64::from(n)),
    );
}

fn all<M: Message>(folder: &Path, kind: &'static str, n: u16) -> impl Iterator<Item = M> {
    let files = (1..=n).map(move |index| file(folder, kind, index));
    files.filter_map(|file| std::fs::read(file).ok()).map(|bytes| M::decode(&bytes).unwrap())
}

/// Peak resident memory of this process, in bytes; 0 if the kernel does not report it.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    1024 * line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "a figure with one decimal")]
fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
