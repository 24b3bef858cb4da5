//! The answer on a balancer's connection: its request has its slot until the answer is sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::slots::Slot;

/// A body that holds a slot until it is dropped.
pub(crate) fn with_slot(body: Body, slot: Slot) -> Body {
    Body::new(AnswerBody { body, _slot: slot })
}

struct AnswerBody {
    body: Body,
    _slot: Slot,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
