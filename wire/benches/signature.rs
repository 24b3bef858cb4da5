//! Cost of a signed request for each side, in addition to the request itself.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use http::Request;
use http::request::Parts;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ED25519, SanType};
use wire::certificate::{Issuers, PARTICIPANT_URN, holder};
use wire::signature::{RequestKey, SignedRequest};
use wire::{Digest, Timestamp};

const SERVER: &str = "fl.example";
const NOW: Timestamp = Timestamp(1_750_000_000_000);

/// A check-in as the SDK sends it.
fn check_in() -> Parts {
    let request =
        Request::post("/v1/check-in").header("tributary-protocol", 1).header("content-type", "application/json");
    request.body(()).unwrap().into_parts().0
}

fn signature(c: &mut Criterion) {
    let authority = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let authority_certificate = params.self_signed(&authority).unwrap();
    let issuer = Issuer::new(params, authority);
    let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    let name = format!("{PARTICIPANT_URN}00000000-0000-4000-8000-000000000000");
    params.subject_alt_names = vec![SanType::URI(name.as_str().try_into().unwrap())];
    let certificate = params.signed_by(&pair, &issuer).unwrap();
    let key = RequestKey::new(&pair.serialize_der(), certificate.der()).unwrap();
    let sha256 = Digest([7; 32]);
    let sign = |mut parts: Parts| {
        key.sign(&mut parts, SERVER, Some(sha256), NOW, [9; 16]);
        parts
    };
    c.bench_function("sign", |b| b.iter_batched(check_in, sign, BatchSize::SmallInput));
    let signed = sign(check_in());
    let bytes: usize = signed.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    println!(
        "{} bytes of headers more",
        bytes - check_in().headers.iter().map(|(n, v)| n.as_str().len() + v.len() + 4).sum::<usize>()
    );
    let identity = holder(certificate.der()).unwrap().key;
    c.bench_function("verify", |b| {
        b.iter(|| SignedRequest::read(&signed, SERVER).unwrap().verify(&identity).unwrap());
    });
    let issuers = Issuers::new(vec![authority_certificate.der().to_vec()]);
    c.bench_function("certificate seen for the first time", |b| b.iter(|| issuers.read(certificate.der()).unwrap()));
}

criterion_group!(benches, signature);
criterion_main!(benches);
