//! Tests of the fate of sockets.

use async_trait::async_trait;
use wire::TaskId;
use wire::participant::ModelRef;

use super::*;
use crate::journal::MemoryJournal;
use crate::participant::Participant;
use crate::transport::{Download, Request, Response};

/// Leads nowhere.
struct Nowhere;

#[async_trait]
impl Transport for Nowhere {
    fn identify(&self, _: &Identity) -> Result<(), TransportError> {
        Ok(())
    }

    async fn send(&self, _: &Request) -> Response {
        unreachable!("nothing is sent")
    }

    async fn fetch_model(&self, _: TaskId, _: &ModelRef, _: &mut Download) -> Result<(), TransportError> {
        unreachable!("nothing is fetched")
    }
}

fn driven() -> Driven {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let mut authority = rcgen::CertificateParams::new(vec![]).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let builder = Participant::builder().transport(Nowhere).journal(MemoryJournal::new()).enrollment_token("token");
    builder.members_ca_pem(authority.self_signed(&key).unwrap().pem()).build_driven().unwrap()
}

#[test]
fn a_forked_child_that_drops_it_leaves_the_sockets_of_its_parent_as_they_are() {
    for is_child in [false, true] {
        let mut driven = driven();
        let (runtime, transport) = (Arc::downgrade(&driven.runtime), Arc::downgrade(&driven.around.transport));
        if is_child {
            driven.process = driven.process.wrapping_add(1);
        }
        drop(driven);
        assert_eq!((runtime.upgrade().is_some(), transport.upgrade().is_some()), (is_child, is_child));
    }
}
