//! Certification of members, over the wire: a coordinator that lies has members of its own certified by its own
//! authority, at renewal and in a roster, before participants whose app pins a company.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rcgen::{KeyPair, PKCS_ED25519};
use secure_agg::MemorySigner;
use secure_agg::codec::Message as _;
use secure_agg::messages::{AdvertiseBody, Roster, RosterEntry, Signed};
use wire::ParticipantId;

use crate::company::{Company, Hook};
use crate::liar::{Asked, Device, Liar, Lies, Wanted, certify, device, sha256};
use crate::support::{Served, run};

/// Three members whose app pins a company, before a liar with an authority of its own. The honest coordinator behind it has the company sign.
struct Pinned {
    folder: tempfile::TempDir,
    company: Arc<Company>,
    served: Served,
    /// Listens as the company's signer does, until the test ends.
    _hook: Hook,
}

fn pinned() -> Pinned {
    let folder = tempfile::tempdir().unwrap();
    let company = Arc::new(Company::new());
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("signer")).unwrap();
    let hook = company.hook(&at("signer"));
    let ca = at("company.pem");
    let identity = format!(
        "members_ca_certificate_file = {ca:?}\n[identity.signer]\nurl = {:?}\nca_certificate_file = {ca:?}",
        hook.url
    );
    let served = company.serve(folder.path(), &identity);
    Pinned { folder, company, served, _hook: hook }
}

impl Pinned {
    /// A liar that has `forger` certify renewals.
    fn liar(
        &self,
        forger: &Arc<Company>,
        renew_at: Option<i64>,
        tell: impl Fn(&Asked, Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Liar {
        let (company, forger) = (Arc::clone(&self.company), Arc::clone(forger));
        let pems = [company.pem.clone(), forger.pem.clone()];
        let lies = Lies {
            certify: Box::new(move |wanted| certify(if wanted.is_renewal { &forger } else { &company }, wanted)),
            renew_at: renew_at.map(wire::Timestamp),
            tell: Box::new(tell),
            ..Lies::none(&self.company)
        };
        let own = self.folder.path().join("liar");
        std::fs::create_dir_all(&own).unwrap();
        Liar::before(&self.served, &self.company, &[&pems[0], &pems[1]], &own, lies)
    }

    fn devices(&self, liar: &Liar) -> Vec<Device> {
        let pin = ["--members-ca", self.served.ca.as_str()];
        (0..3).map(|index| device(&self.served, liar, self.folder.path(), (index, 3), &pin)).collect()
    }

    fn create_task(&self) {
        let task = self.folder.path().join("task.toml");
        let path = task.to_str().unwrap();
        assert_eq!(run(&["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", path]).code, 0);
        self.served.operate(&["task", "create", path]).data();
    }
}

#[test]
fn a_renewal_that_another_authority_signed_is_not_taken() {
    for is_forged in [true, false] {
        let world = pinned();
        let forger = if is_forged { Arc::new(Company::new()) } else { Arc::clone(&world.company) };
        let liar = world.liar(&forger, Some(0), |_, body| body);
        let devices = world.devices(&liar);
        for device in &devices {
            if is_forged {
                let told = device.wait_for(|event| event["event"] == "note").to_string();
                assert!(
                    told.contains("the renewed certificate is refused: it is not signed by an authority"),
                    "{told}"
                );
            } else {
                device.wait_for(|event| event["event"] == "renewed");
            }
        }
    }
}

/// In the victim's roster, all other keys are the liar's, certified by `forger`.
fn forged(roster: &[u8], victim: ParticipantId, forger: &Company) -> Vec<u8> {
    let mut roster = Roster::decode(roster).unwrap();
    let mut entries: Vec<RosterEntry> = roster.entries.iter().cloned().collect();
    for entry in entries.iter_mut().filter(|entry| entry.client_id.as_slice() != victim.0.as_bytes()) {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let hex: String = entry.client_id.as_slice().iter().map(|byte| format!("{byte:02x}")).collect();
        let participant: ParticipantId = hex.parse().unwrap();
        let csr_pem = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let chain = certify(forger, &Wanted { csr_pem, participant, is_renewal: false });
        let certificate = wire::certificate::chain_der(&chain).unwrap().remove(0);
        let signer = MemorySigner::from_pkcs8(&key.serialize_der()).unwrap();
        let seed = sha256(&certificate);
        let public = |n: usize| -> [u8; 32] { std::array::from_fn(|at| seed.as_bytes()[(at + n) % 64]) };
        let body = AdvertiseBody {
            round: roster.round.clone(),
            client_id: entry.client_id.clone(),
            certificate: certificate.into(),
            c_pk: public(1),
            s_pk: public(2),
            b_commit: public(3),
        };
        *entry = RosterEntry::of(&Signed::sign(body, &signer).unwrap());
    }
    roster.entries = entries.into();
    roster.encode()
}

#[test]
fn in_a_roster_of_the_liars_own_members_nobody_deals_anything() {
    // With the company's key in its hands the liar would succeed: then only the issuer is in its way.
    for has_company_key in [false, true] {
        let world = pinned();
        let forger = if has_company_key { Arc::clone(&world.company) } else { Arc::new(Company::new()) };
        let victim = Arc::new(Mutex::new(None));
        let (chosen, forging) = (Arc::clone(&victim), Arc::clone(&forger));
        let liar = world.liar(&forger, None, move |asked, body| match *chosen.lock().unwrap() {
            Some(victim) if asked.member == Some(victim) && asked.path.contains("/roster?") => {
                forged(&body, victim, &forging)
            }
            _ => body,
        });
        let devices = world.devices(&liar);
        *victim.lock().unwrap() = Some(devices[0].id);
        world.create_task();
        let deals = |liar: &Liar| {
            let dealt = format!("/key-shares/{}", devices[0].id);
            liar.seen().iter().any(|asked| asked.method == http::Method::PUT && asked.path.contains(&dealt))
        };
        if has_company_key {
            let end = Instant::now() + Duration::from_secs(60);
            while !deals(&liar) {
                assert!(Instant::now() < end, "the forged roster was refused for something else than its issuer");
                std::thread::sleep(Duration::from_millis(20));
            }
        } else {
            let reason = devices[0].refusal();
            assert!(reason.contains("certificate"), "{reason}");
            assert!(!deals(&liar));
        }
    }
}
