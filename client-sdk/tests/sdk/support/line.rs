//! Messages from and to one device of a cohort.

use std::collections::VecDeque;

use client_sdk::transport::{Download, Request, Response, TransportError};
use wire::Attempt;
use wire::TaskId;
use wire::participant::ModelRef;

use super::cohort::{Hub, World, id, kind, name};
use super::link::{FakeCoordinator, Fault, lost};

#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) hub: Hub,
    device: usize,
}

impl Line {
    pub(crate) fn new(hub: Hub, device: usize) -> Self {
        Self { hub, device }
    }

    fn go<T>(
        &self,
        call: &'static str,
        effect: impl FnOnce(&mut World) -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        self.hub.world(|world| {
            world.calls.push((self.device, call));
            if world.is_gone(self.device) {
                return lost();
            }
            let faults = world.faults.get_mut(&(self.device, call));
            faults.and_then(VecDeque::pop_front).unwrap_or(Fault::None).apply(|_| effect(world))
        })
    }
}

impl FakeCoordinator for Line {
    fn answer(&self, request: Request) -> Response {
        let device = self.device;
        match request {
            Request::Enroll(request) => Response::Enrolled(
                self.go("enroll", |world| Ok(world.enroll(device, request.csr_pem.as_deref().unwrap()))),
            ),
            Request::Renew(request) => Response::Renewed(
                self.go("renew", |world| Ok(world.enroll(device, request.csr_pem.as_deref().unwrap()))),
            ),
            Request::CheckIn(request) => {
                Response::CheckedIn(self.go("check_in", |world| world.check_in(device, &request)))
            }
            Request::Upload(upload) => Response::Uploaded(self.go("upload", |world| world.upload(device, &upload))),
            Request::Manifest(_) | Request::Part(_) => unreachable!("its updates are small"),
            Request::Withdraw => unreachable!("it stays"),
            Request::Announcement { what, place, participant, .. } => {
                assert_eq!(participant, id(device));
                Response::Announced(self.go(name(what), |world| world.announce(what, device, place)))
            }
            Request::Evidence { place, dealer } => {
                Response::Evidenced(self.go("evidence", |world| world.evidence(place, dealer)))
            }
            Request::Answer { what, place, participant, body } => {
                assert_eq!(participant, id(device));
                Response::Answered(self.go(kind(what), |world| world.take(what, device, place, &body)))
            }
            Request::Abandon(abandonment) => Response::Abandoned(self.go("abandon", |world| {
                world.abandon(device, &abandonment);
                Ok(())
            })),
        }
    }

    fn fetch(&self, _: TaskId, model: &ModelRef, sink: &mut Download) -> Result<(), TransportError> {
        let file = self.go("fetch", |world| Ok(world.file_ahead(self.device, model.version)))?;
        sink.append(&file[usize::try_from(sink.bytes()).unwrap()..])
    }

    /// Whatever is said is said alike each time.
    fn observe(&self, place: Attempt, what: &'static str, bytes: Vec<u8>) {
        let key = (place.round, place.attempt, what, self.device);
        self.hub.world(|world| {
            let before = world.said.entry(key).or_insert_with(|| bytes.clone());
            assert_eq!(*before, bytes, "{key:?} was said in two ways");
        });
    }
}
