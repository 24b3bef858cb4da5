//! Callbacks of an app in C.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;

use client_sdk::{DeviceState, Thermal};
use zeroize::Zeroizing;

use super::exchange::{TributaryExchange, TributaryHeader, TributaryRequest, hand_out};
use crate::app::callback::CallbackError;
use crate::app::callbacks::{Callbacks, EventListener, KeyStore};
use crate::app::conditions::DeviceConditions;
use crate::app::http_client::{Exchange, HttpClient, HttpHeader, HttpRequest};

/// A value that the app does not know.
pub const TRIBUTARY_UNKNOWN: i32 = -1;

/// The state of the device. Any number outside the named ones means `TRIBUTARY_UNKNOWN`. A condition of
/// `device_conditions` in the options on an unknown state does not hold.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TributaryDeviceState {
    /// 1 if it is, 0 if it is not.
    pub charging: i32,
    /// 1 if traffic on the network is free of charge, 0 if it is metered.
    pub unmetered: i32,
    /// 1 if the device is unused, 0 if it is in use.
    pub idle: i32,
    /// 0 to 100.
    pub battery_percent: i32,
    /// 0 nominal, 1 fair, 2 serious (the system slows down), 3 critical.
    pub thermal: i32,
}

impl TributaryDeviceState {
    const fn unknown() -> Self {
        let nothing = TRIBUTARY_UNKNOWN;
        Self { charging: nothing, unmetered: nothing, idle: nothing, battery_percent: nothing, thermal: nothing }
    }

    /// The same as the SDK takes it.
    pub(super) fn known(self) -> DeviceState {
        let is_so = |number| match number {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        DeviceState {
            charging: is_so(self.charging),
            unmetered: is_so(self.unmetered),
            idle: is_so(self.idle),
            battery_percent: u8::try_from(self.battery_percent).ok().filter(|percent| *percent <= 100),
            thermal: match self.thermal {
                0 => Some(Thermal::Nominal),
                1 => Some(Thermal::Fair),
                2 => Some(Thermal::Serious),
                3 => Some(Thermal::Critical),
                _ => None,
            },
        }
    }
}

/// Callbacks of an app; each may be NULL, and then is left out.
///
/// **Callbacks may come from any thread**, also two different ones at the same time. Events and queries come one after
/// the other, and so do calls of the key store. They must return immediately, and must not call waiting functions
/// (`TRIBUTARY_CODE_IN_CALLBACK`). The key store is called while the journal is written, by the writing thread. That
/// may be one of the app's in a call such as `tributary_job_save_checkpoint`. The key store must not use a job or a
/// machine. **A callback in C++ must catch its exceptions**: an exception that leaves it is undefined behaviour, and
/// usually ends the process. Callbacks end when `tributary_close` has returned TRIBUTARY_CODE_OK. Until then `context`
/// and the functions must stay; the structure itself may go as soon as `tributary_start` has returned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TributaryCallbacks {
    /// Handed to every callback as it is.
    pub context: *mut c_void,
    /// Receives an event: its name in snake case, and its fields as a JSON object. Both texts are invalid after it
    /// returns.
    pub on_event: Option<extern "C" fn(context: *mut c_void, name: *const c_char, fields: *const c_char)>,
    /// Writes the device's state into `state`, which is unknown before. Returns 0; any other value if it fails, and
    /// then all of it is unknown. The required state is `device_conditions` of the options: by default the device
    /// charges, is unused, has an unmetered network, and is not hot. While that does not hold, this is called again
    /// after `ask_again_ms`, and immediately after `tributary_conditions_changed`. If it is NULL, the participant works
    /// whenever it runs.
    pub device_state: Option<extern "C" fn(context: *mut c_void, state: *mut TributaryDeviceState) -> c_int>,
    /// Reads a secret of the journal from the device's key store into a buffer of `size` bytes, and returns its length.
    /// Returns 0 before the first save under the name, and -1 if it cannot be read. Needs `save_secret`; without both
    /// the secrets are in files next to the journal.
    pub load_secret:
        Option<extern "C" fn(context: *mut c_void, name: *const c_char, buffer: *mut u8, size: usize) -> isize>,
    /// Replaces a secret, and returns 0 once it survives a crash; anything else if it cannot.
    pub save_secret:
        Option<extern "C" fn(context: *mut c_void, name: *const c_char, bytes: *const u8, count: usize) -> c_int>,
    /// Begins to send a request by an HTTP client of the app's own, in the place of the library's HTTPS: once, to the coordinator alone, over
    /// TLS 1.3, without following redirects. It returns at once; the answer comes by `tributary_exchange_head`, `_piece` and `_end`, or
    /// `_fail`, from any thread, and one of the last two must come. `request` and all that it points to are gone when this returns. A second
    /// request may begin while one is under way. A coordinator may take 25 s until it answers. Needs `show_certificate`; without both the
    /// library's own HTTPS is used, where it was built with it.
    pub begin_request:
        Option<extern "C" fn(context: *mut c_void, exchange: TributaryExchange, request: *const TributaryRequest)>,
    /// Presents this certificate in the TLS handshake from now on: the chain in PEM, and its private key in PKCS #8
    /// (DER). The client must present them only to the coordinator, and must not store the key. Both are invalid after
    /// it returns. Returns 0; any other value if it fails, and then the participant ends. Not called with
    /// `signed_requests` in the options.
    pub show_certificate: Option<
        extern "C" fn(context: *mut c_void, certificate: *const c_char, key: *const u8, key_bytes: usize) -> c_int,
    >,
}

/// Longest secret that a key store gives back.
const SECRET_BYTES: usize = 256;

/// The app's context, for its callbacks.
#[derive(Clone, Copy)]
pub(super) struct Context(pub(super) *mut c_void);

#[expect(unsafe_code, reason = "the context is the app's, and it is told which threads use it")]
// SAFETY: the pointer is only handed back to the app, which promises that any thread may use it.
unsafe impl Send for Context {}
#[expect(unsafe_code, reason = "the context is the app's, and it is told which threads use it")]
// SAFETY: as above.
unsafe impl Sync for Context {}

struct Events(Context, extern "C" fn(*mut c_void, *const c_char, *const c_char));

impl EventListener for Events {
    fn on_event(&self, name: String, fields: String) -> Result<(), CallbackError> {
        let (name, fields) = (c_text(name)?, c_text(fields)?);
        (self.1)(self.0.0, name.as_ptr(), fields.as_ptr());
        Ok(())
    }
}

struct Device(Context, extern "C" fn(*mut c_void, *mut TributaryDeviceState) -> c_int);

impl DeviceConditions for Device {
    fn state(&self) -> Result<DeviceState, CallbackError> {
        let mut state = TributaryDeviceState::unknown();
        match (self.1)(self.0.0, &raw mut state) {
            0 => Ok(state.known()),
            failed => Err(CallbackError::Failed { reason: format!("device_state returned {failed}") }),
        }
    }
}

struct Secrets {
    context: Context,
    load: extern "C" fn(*mut c_void, *const c_char, *mut u8, usize) -> isize,
    save: extern "C" fn(*mut c_void, *const c_char, *const u8, usize) -> c_int,
}

impl KeyStore for Secrets {
    fn load(&self, name: String) -> Result<Option<Vec<u8>>, CallbackError> {
        let name = c_text(name)?;
        let mut secret = vec![0; SECRET_BYTES];
        let count = (self.load)(self.context.0, name.as_ptr(), secret.as_mut_ptr(), secret.len());
        match usize::try_from(count) {
            Ok(0) => Ok(None),
            Ok(count) if count <= secret.len() => {
                secret.truncate(count);
                Ok(Some(secret))
            }
            _ => Err(CallbackError::Failed { reason: format!("load_secret returned {count}") }),
        }
    }

    fn save(&self, name: String, secret: Vec<u8>) -> Result<(), CallbackError> {
        let name = c_text(name)?;
        match (self.save)(self.context.0, name.as_ptr(), secret.as_ptr(), secret.len()) {
            0 => Ok(()),
            failed => Err(CallbackError::Failed { reason: format!("save_secret returned {failed}") }),
        }
    }
}

struct Client {
    context: Context,
    begin: extern "C" fn(*mut c_void, TributaryExchange, *const TributaryRequest),
    show: extern "C" fn(*mut c_void, *const c_char, *const u8, usize) -> c_int,
}

impl HttpClient for Client {
    fn begin(&self, request: HttpRequest, exchange: Arc<Exchange>) -> Result<(), CallbackError> {
        let HttpRequest { method, path, headers, body } = request;
        let (method, path) = (c_text(method)?, c_text(path)?);
        let texts = headers
            .into_iter()
            .map(|HttpHeader { name, value }| Ok::<_, CallbackError>((c_text(name)?, c_text(value)?)));
        let texts = texts.collect::<Result<Vec<_>, CallbackError>>()?;
        let header =
            |(name, value): &(CString, CString)| TributaryHeader { name: name.as_ptr(), value: value.as_ptr() };
        let headers: Vec<_> = texts.iter().map(header).collect();
        let request = TributaryRequest {
            method: method.as_ptr(),
            path: path.as_ptr(),
            headers: headers.as_ptr(),
            header_count: headers.len(),
            body: body.as_ptr(),
            body_bytes: body.len(),
        };
        (self.begin)(self.context.0, hand_out(exchange), &raw const request);
        Ok(())
    }

    fn identify(&self, certificate_pem: String, key_pkcs8: Vec<u8>) -> Result<(), CallbackError> {
        let (certificate, key) = (c_text(certificate_pem)?, Zeroizing::new(key_pkcs8));
        match (self.show)(self.context.0, certificate.as_ptr(), key.as_ptr(), key.len()) {
            0 => Ok(()),
            failed => Err(CallbackError::Failed { reason: format!("show_certificate returned {failed}") }),
        }
    }
}

fn c_text(text: String) -> Result<CString, CallbackError> {
    CString::new(text).map_err(|error| CallbackError::Failed { reason: error.to_string() })
}

impl TributaryCallbacks {
    /// The same as the facade takes it.
    pub(super) fn into_callbacks(self) -> Callbacks {
        let Self { context, on_event, device_state, load_secret, save_secret, begin_request, show_certificate } = self;
        let context = Context(context);
        let secrets = load_secret.zip(save_secret).map(|(load, save)| Secrets { context, load, save });
        let client = begin_request.zip(show_certificate).map(|(begin, show)| Client { context, begin, show });
        Callbacks {
            conditions: device_state.map(|ask| Arc::new(Device(context, ask)) as Arc<dyn DeviceConditions>),
            key_store: secrets.map(|secrets| Arc::new(secrets) as Arc<dyn KeyStore>),
            events: on_event.map(|tell| Arc::new(Events(context, tell)) as Arc<dyn EventListener>),
            http_client: client.map(|client| Arc::new(client) as Arc<dyn HttpClient>),
        }
    }
}

#[cfg(test)]
mod tests;
