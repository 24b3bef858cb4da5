//! Functions about the answers to requests that the app's own HTTP client sends.
//!
//! This file is free of `unsafe` blocks. Exporting a name counts as unsafe, since another library might have the same.
#![expect(unsafe_code, reason = "`no_mangle`: all names begin with tributary_")]

use std::ffi::c_char;
use std::sync::Arc;

use super::arguments::{array, text};
use super::code::TributaryCode;
use super::guard::guard;
use super::handles::Table;
use crate::app::http_client::{Exchange, HttpHeader};
use crate::error::TributaryError;

/// One request that the app's HTTP client sends: a number, to be copied freely. Any thread may use it, also in `begin_request`. It stands
/// for the exchange until `tributary_exchange_end` or `tributary_exchange_fail`, one of which must be called for each; afterwards calls
/// return `TRIBUTARY_CODE_CLOSED`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TributaryExchange {
    /// 0 is invalid.
    pub id: u64,
}

/// A header of a request or of an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TributaryHeader {
    /// Of a request in lower case.
    pub name: *const c_char,
    /// In UTF-8, ended by a zero byte.
    pub value: *const c_char,
}

/// A request to the coordinator.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TributaryRequest {
    /// `GET`, `POST` or `PUT`.
    pub method: *const c_char,
    /// Path and query; `server` of the options comes before it.
    pub path: *const c_char,
    /// To be sent as they are: some requests are signed.
    pub headers: *const TributaryHeader,
    /// Number of `headers`, at least one.
    pub header_count: usize,
    /// Of `body_bytes` bytes, 8 MiB at most; absent if that is 0.
    pub body: *const u8,
    /// Length of the body.
    pub body_bytes: usize,
}

static EXCHANGES: Table<Exchange> = Table::new();

/// A handle for an exchange.
pub(super) fn hand_out(exchange: Arc<Exchange>) -> TributaryExchange {
    TributaryExchange { id: EXCHANGES.put(exchange) }
}

fn with(exchange: TributaryExchange, work: impl FnOnce(&Exchange) -> Result<bool, TributaryError>) -> TributaryCode {
    guard(|| Ok(if work(&*EXCHANGES.get(exchange.id)?)? { TributaryCode::Ok } else { TributaryCode::Nothing }))
}

/// The head of the answer, before its body: its status, and `count` headers. Does not wait.
///
/// Returns OK; NOTHING if the participant has stopped waiting: the client may cancel the request. Errors: ARGUMENT,
/// CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_exchange_head(
    exchange: TributaryExchange,
    status: u16,
    headers: *const TributaryHeader,
    count: usize,
) -> TributaryCode {
    with(exchange, |exchange| {
        let headers = array(headers, count, "headers")?.iter().map(|header| {
            let (name, value) = (text(header.name, "name")?.to_owned(), text(header.value, "value")?.to_owned());
            Ok::<_, TributaryError>(HttpHeader { name, value })
        });
        Ok(exchange.head(status, headers.collect::<Result<_, TributaryError>>()?))
    })
}

/// The next bytes of the body, which are copied. Waits while more than a megabyte is unread, except in a callback.
///
/// Returns OK; NOTHING if the participant has stopped reading: the client may cancel the request. Errors: ARGUMENT,
/// CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_exchange_piece(
    exchange: TributaryExchange,
    bytes: *const u8,
    count: usize,
) -> TributaryCode {
    with(exchange, |exchange| Ok(exchange.piece(array(bytes, count, "bytes")?.to_vec())))
}

/// The answer is complete; the handle is gone. Does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_exchange_end(exchange: TributaryExchange) -> TributaryCode {
    guard(|| {
        EXCHANGES.take(exchange.id)?.end();
        Ok(TributaryCode::Ok)
    })
}

/// The answer, or the rest of it, cannot be had, for a reason that a person can read. Ends the handle. Does not wait.
///
/// Errors: ARGUMENT, CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_exchange_fail(exchange: TributaryExchange, reason: *const c_char) -> TributaryCode {
    guard(|| {
        let reason = text(reason, "reason")?.to_owned();
        EXCHANGES.take(exchange.id)?.fail(reason);
        Ok(TributaryCode::Ok)
    })
}

/// OK if the participant has stopped waiting for the answer, so that the client may cancel the request; otherwise
/// NOTHING. Does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_exchange_is_over(exchange: TributaryExchange) -> TributaryCode {
    with(exchange, |exchange| Ok(exchange.is_over()))
}
