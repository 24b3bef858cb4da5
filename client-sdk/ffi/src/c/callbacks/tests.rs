//! Tests of the pointers that callbacks read and write, and of the library's reading of the results.

use std::pin::Pin;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::task::{Poll, Waker};

use client_sdk::runner::OverClient;
use client_sdk::transport::Carrier as _;

use super::super::arguments::{array, give, optional, put_all, text};
use super::super::code::TributaryCode;
use super::super::exchange::{
    tributary_exchange_end, tributary_exchange_head, tributary_exchange_is_over, tributary_exchange_piece,
};
use super::*;
use crate::app::http_client::Own;

/// The app's context: an opaque address.
const CONTEXT: usize = 7;

/// An app without callbacks.
fn nothing() -> TributaryCallbacks {
    TributaryCallbacks {
        context: std::ptr::without_provenance_mut(CONTEXT),
        on_event: None,
        device_state: None,
        load_secret: None,
        save_secret: None,
        begin_request: None,
        show_certificate: None,
    }
}

fn words(pointer: *const c_char) -> String {
    text(pointer, "a text").unwrap().to_owned()
}

/// Reported events: context, name, fields.
static TOLD: Mutex<Vec<(usize, String, String)>> = Mutex::new(Vec::new());

extern "C" fn tells(context: *mut c_void, name: *const c_char, fields: *const c_char) {
    TOLD.lock().unwrap().push((context.addr(), words(name), words(fields)));
}

#[test]
fn an_event_is_told_with_the_apps_own_context_from_any_thread() {
    let events = TributaryCallbacks { on_event: Some(tells), ..nothing() }.into_callbacks().events.unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| events.on_event("fetched".to_owned(), "{}".to_owned()).unwrap());
    });
    events.on_event("over".to_owned(), r#"{"round":1}"#.to_owned()).unwrap();
    let error = events.on_event("with\0nul".to_owned(), String::new()).unwrap_err();
    assert!(error.to_string().contains("nul byte"), "{error}");
    let told = |name: &str, fields: &str| (CONTEXT, name.to_owned(), fields.to_owned());
    assert_eq!(*TOLD.lock().unwrap(), [told("fetched", "{}"), told("over", r#"{"round":1}"#)]);
}

extern "C" fn charges(_: *mut c_void, state: *mut TributaryDeviceState) -> c_int {
    let known = optional(state.cast_const(), "state").unwrap().unwrap();
    c_int::from(give(TributaryDeviceState { charging: 1, ..known }, state, "state").is_err())
}

extern "C" fn cannot_tell(_: *mut c_void, _: *mut TributaryDeviceState) -> c_int {
    2
}

#[test]
fn a_device_is_told_by_what_the_app_changes() {
    type Ask = extern "C" fn(*mut c_void, *mut TributaryDeviceState) -> c_int;
    let asked =
        |ask: Ask| TributaryCallbacks { device_state: Some(ask), ..nothing() }.into_callbacks().conditions.unwrap();
    assert_eq!(asked(charges).state(), Ok(DeviceState { charging: Some(true), ..DeviceState::default() }));
    assert_eq!(asked(cannot_tell).state().unwrap_err().to_string(), "device_state returned 2");
}

#[test]
fn numbers_that_say_nothing_are_unknown() {
    assert_eq!(TributaryDeviceState::unknown().known(), DeviceState::default());
    let odd = TributaryDeviceState { charging: 2, unmetered: -5, idle: 1, battery_percent: 101, thermal: 4 };
    assert_eq!(odd.known(), DeviceState { idle: Some(true), ..DeviceState::default() });
    let low = TributaryDeviceState { charging: 0, unmetered: 1, idle: 0, battery_percent: 100, thermal: 3 };
    let known = DeviceState {
        charging: Some(false),
        unmetered: Some(true),
        idle: Some(false),
        battery_percent: Some(100),
        thermal: Some(Thermal::Critical),
    };
    assert_eq!(low.known(), known);
}

/// The next result of the key store.
static RETURNS: AtomicIsize = AtomicIsize::new(0);
/// Secrets that were saved.
static SAVED: Mutex<Vec<(String, Vec<u8>)>> = Mutex::new(Vec::new());

/// Writes to every byte that it may.
extern "C" fn loads(_: *mut c_void, name: *const c_char, buffer: *mut u8, size: usize) -> isize {
    assert_eq!(words(name), "journal-key");
    put_all(&vec![9; size], buffer, size, null_mut()).unwrap();
    RETURNS.load(Ordering::Relaxed)
}

extern "C" fn saves(_: *mut c_void, name: *const c_char, bytes: *const u8, count: usize) -> c_int {
    SAVED.lock().unwrap().push((words(name), array(bytes, count, "bytes").unwrap().to_vec()));
    c_int::from(count == 0)
}

#[test]
fn a_secret_is_as_long_as_the_key_store_says_if_the_buffer_is() {
    let callbacks = TributaryCallbacks { load_secret: Some(loads), save_secret: Some(saves), ..nothing() };
    let store = callbacks.into_callbacks().key_store.unwrap();
    let loaded = |returned: isize| {
        RETURNS.store(returned, Ordering::Relaxed);
        store.load("journal-key".to_owned()).map_err(|error| error.to_string())
    };
    assert_eq!(loaded(0), Ok(None));
    let most = isize::try_from(SECRET_BYTES).unwrap();
    for count in [1, 32, most] {
        assert_eq!(loaded(count), Ok(Some(vec![9; count.unsigned_abs()])));
    }
    for wrong in [-1, isize::MIN, most + 1, isize::MAX] {
        assert_eq!(loaded(wrong), Err(format!("load_secret returned {wrong}")));
    }
    store.save("journal-key".to_owned(), vec![1, 2, 3]).unwrap();
    let error = store.save("journal-key".to_owned(), vec![]).unwrap_err();
    assert_eq!(error.to_string(), "save_secret returned 1");
    let saved = |bytes: &[u8]| ("journal-key".to_owned(), bytes.to_vec());
    assert_eq!(*SAVED.lock().unwrap(), [saved(&[1, 2, 3]), saved(&[])]);
}

/// Requests that were begun: exchange, texts, body.
type Begun = Vec<(TributaryExchange, Vec<String>, Vec<u8>)>;
static BEGUN: Mutex<Begun> = Mutex::new(Vec::new());
/// Certificates that were shown, with their keys.
static SHOWN: Mutex<Vec<(String, Vec<u8>)>> = Mutex::new(Vec::new());

extern "C" fn begins(_: *mut c_void, exchange: TributaryExchange, request: *const TributaryRequest) {
    let request = optional(request, "request").unwrap().unwrap();
    let headers = array(request.headers, request.header_count, "headers").unwrap();
    let mut texts = vec![words(request.method), words(request.path)];
    texts.extend(headers.iter().flat_map(|header| [words(header.name), words(header.value)]));
    let body = array(request.body, request.body_bytes, "body").unwrap().to_vec();
    BEGUN.lock().unwrap().push((exchange, texts, body));
}

extern "C" fn shows(_: *mut c_void, certificate: *const c_char, key: *const u8, key_bytes: usize) -> c_int {
    SHOWN.lock().unwrap().push((words(certificate), array(key, key_bytes, "key").unwrap().to_vec()));
    c_int::from(key_bytes == 0)
}

/// Has the exchange that it was given.
#[derive(Default)]
struct Given(Mutex<Option<Arc<Exchange>>>);

impl HttpClient for Given {
    fn begin(&self, _: HttpRequest, exchange: Arc<Exchange>) -> Result<(), CallbackError> {
        *self.0.lock().unwrap() = Some(exchange);
        Ok(())
    }

    fn identify(&self, _: String, _: Vec<u8>) -> Result<(), CallbackError> {
        Ok(())
    }
}

/// The output of a future that is ready.
fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut std::task::Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_client_of_the_app_reads_the_request_and_answers_by_its_number() {
    let callbacks = TributaryCallbacks { begin_request: Some(begins), show_certificate: Some(shows), ..nothing() };
    let client = callbacks.into_callbacks().http_client.unwrap();
    let given = Arc::<Given>::default();
    let over = OverClient(Own(Arc::clone(&given) as Arc<dyn HttpClient>));
    let mut answer = over.send(Default::default());
    assert!(poll(&mut answer).is_none(), "nobody has answered");
    let exchange = given.0.lock().unwrap().take().unwrap();

    let header = |name: &str, value: &str| HttpHeader { name: name.to_owned(), value: value.to_owned() };
    let headers = vec![header("content-type", "application/json"), header("x-name", "ü")];
    let request = HttpRequest { method: "POST".to_owned(), path: "/v1/enroll".to_owned(), headers, body: vec![4, 5] };
    client.begin(request, exchange).unwrap();
    let (exchange, texts, body) = BEGUN.lock().unwrap().pop().unwrap();
    assert_eq!(texts, ["POST", "/v1/enroll", "content-type", "application/json", "x-name", "ü"]);
    assert_eq!(body, [4, 5]);

    let headers = [TributaryHeader { name: c"content-type".as_ptr(), value: c"text/plain".as_ptr() }];
    assert_eq!(tributary_exchange_is_over(exchange), TributaryCode::Nothing);
    assert_eq!(tributary_exchange_head(exchange, 200, headers.as_ptr(), usize::MAX), TributaryCode::Argument);
    assert_eq!(tributary_exchange_head(exchange, 200, headers.as_ptr(), 1), TributaryCode::Ok);
    assert_eq!(tributary_exchange_piece(exchange, null(), 1), TributaryCode::Argument);
    assert_eq!(tributary_exchange_piece(exchange, [1, 2, 3].as_ptr(), 3), TributaryCode::Ok);
    assert_eq!(tributary_exchange_end(exchange), TributaryCode::Ok);
    assert_eq!(tributary_exchange_end(exchange), TributaryCode::Closed);
    assert_eq!(tributary_exchange_is_over(exchange), TributaryCode::Closed);

    let answer = poll(&mut answer).unwrap().unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["content-type"].as_bytes()), (200, &b"text/plain"[..]));
    let mut body = answer.into_body();
    assert_eq!(poll(&mut body.next()).unwrap().unwrap().unwrap().to_vec(), [1, 2, 3]);
    assert!(poll(&mut body.next()).unwrap().is_none());
}

#[test]
fn a_certificate_is_shown_with_its_key() {
    let callbacks = TributaryCallbacks { begin_request: Some(begins), show_certificate: Some(shows), ..nothing() };
    let client = callbacks.into_callbacks().http_client.unwrap();
    client.identify("the chain".to_owned(), vec![6; 48]).unwrap();
    let error = client.identify("the chain".to_owned(), vec![]).unwrap_err();
    assert_eq!(error.to_string(), "show_certificate returned 1");
    let shown = |key: &[u8]| ("the chain".to_owned(), key.to_vec());
    assert_eq!(*SHOWN.lock().unwrap(), [shown(&[6; 48]), shown(&[])]);
}
