//! Received frames, and frames of the connection itself (RFC 9113, sections 3.4, 4 and 6).

use std::time::Instant;

use super::{Connection, ConnectionEnd, ConnectionFailure, DEFAULT_WINDOW, PartialBlock};
use crate::budget::BudgetExceeded;
use crate::frame::{self, FrameHead, HEAD, MAX_PAYLOAD, Reason, flag, kind};
use crate::service::Service;

/// The client's connection preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Maximum window (RFC 9113, 6.9.1).
const MAX_WINDOW: i64 = (1 << 31) - 1;
/// Factor of the maximum size of a header list for that of a header block in several frames. Fits
/// twice a list of the maximum size, Huffman-coded or not.
const BLOCK_FACTOR: usize = 4;

/// Identifiers of the settings that this side reads (RFC 9113, 6.5.2).
mod setting {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(super) const MAX_FRAME_SIZE: u16 = 5;
}

impl<S: Service> Connection<S> {
    /// Handles the complete frames in bytes from the client, until the connection [is
    /// behind](Self::is_behind). Returns the number of bytes consumed; the caller passes the rest
    /// again, followed by more.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Instant) -> usize {
        self.timers.on_read(now);
        self.begun = 0;
        self.work = 0;
        let mut at = 0;
        if self.timers.awaits_preface() {
            let length = bytes.len().min(PREFACE.len());
            if bytes.get(..length) != PREFACE.get(..length) {
                self.fail(&Reason::PROTOCOL_ERROR.into());
                return bytes.len();
            }
            if length < PREFACE.len() {
                return 0;
            }
            self.timers.on_preface();
            at = length;
        }
        while self.end.is_none() && !self.is_behind() {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(head) = rest.first_chunk::<HEAD>().map(FrameHead::read) else { break };
            if head.length > MAX_PAYLOAD {
                self.fail(&Reason::FRAME_SIZE_ERROR.into());
                break;
            }
            let Some((payload, after)) =
                rest.get(HEAD..).and_then(|rest| rest.split_at_checked(head.length))
            else {
                break;
            };
            at = at.saturating_add(HEAD).saturating_add(head.length);
            match self.frame(head, payload, after, now) {
                Ok(more) => at = at.saturating_add(more),
                Err(failure) => self.fail(&failure),
            }
        }
        self.fields.shrink();
        if self.end.is_some() { bytes.len() } else { at }
    }

    /// Handles one frame. Returns the number of bytes of `after` consumed with it.
    fn frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        after: &[u8],
        now: Instant,
    ) -> Result<usize, ConnectionFailure> {
        let is_continued =
            self.block.as_ref().is_some_and(|block| block.head.stream == head.stream);
        if (self.block.is_some() || head.kind == kind::CONTINUATION)
            && !(is_continued && head.kind == kind::CONTINUATION)
        {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        if self.timers.awaits_settings() && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        match head.kind {
            kind::HEADERS => return self.headers(head, payload, after, now),
            kind::DATA => self.data(head, payload, now)?,
            kind::CONTINUATION => self.continuation(head, payload, now)?,
            kind::RST_STREAM => self.rst_stream(head, payload, now)?,
            kind::SETTINGS => self.settings(head, payload, now)?,
            kind::PING => self.ping(head, payload, now)?,
            kind::WINDOW_UPDATE => self.window_update(head, payload, now)?,
            kind::PRIORITY => self.priority(head, payload, now)?,
            kind::GOAWAY if head.stream != 0 => return Err(Reason::PROTOCOL_ERROR.into()),
            kind::GOAWAY if payload.len() < 8 => return Err(Reason::FRAME_SIZE_ERROR.into()),
            kind::GOAWAY => {
                self.record_control(now)?;
                self.timers.on_goaway();
            }
            kind::PUSH_PROMISE => return Err(Reason::PROTOCOL_ERROR.into()),
            // Unknown frame types are ignored (RFC 9113, 5.5).
            _ => self.record_control(now)?,
        }
        Ok(0)
    }

    /// Keeps the start of a header block.
    pub(super) fn begin_block(&mut self, block: PartialBlock) -> Result<(), ConnectionFailure> {
        self.account.charge(block.bytes.len()).map_err(|_| Reason::ENHANCE_YOUR_CALM)?;
        self.block = Some(block);
        Ok(())
    }

    fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        let Some(mut block) = self.block.take() else { return Err(Reason::PROTOCOL_ERROR.into()) };
        if payload.is_empty() && !head.has(flag::END_HEADERS) {
            self.record_empty(now)?;
        }
        let max_list = self.limits.max_header_list as usize;
        let length = block.bytes.len().saturating_add(payload.len());
        if length > max_list.saturating_mul(BLOCK_FACTOR) {
            return Err(ConnectionFailure {
                reason: Reason::ENHANCE_YOUR_CALM,
                end: ConnectionEnd::Flood,
            });
        }
        self.account.charge(payload.len()).map_err(|_| Reason::ENHANCE_YOUR_CALM)?;
        block.bytes.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            self.block = Some(block);
            return Ok(());
        }
        self.account.release(block.bytes.len());
        // DATA is handled separately: a block in several frames is rare.
        self.header_block(block.head, &block.bytes, &[], now).map(drop)
    }

    fn rst_stream(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        if self.is_idle(head.stream) {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        if payload.len() != 4 {
            return Err(Reason::FRAME_SIZE_ERROR.into());
        }
        // Includes a stream that was answered before its whole request arrived.
        if self.streams.contains_key(&head.stream) || self.forgotten.contains(head.stream) {
            self.remove(head.stream);
            let recorded = self.abuse.record_reset(now);
            self.tolerate(recorded, now)
        } else {
            self.record_control(now)
        }
    }

    fn settings(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        if head.stream != 0 {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        if head.has(flag::ACK) {
            self.record_control(now)?;
            return if payload.is_empty() { Ok(()) } else { Err(Reason::FRAME_SIZE_ERROR.into()) };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(Reason::FRAME_SIZE_ERROR.into());
        }
        self.record_empty(now)?;
        self.timers.on_settings();
        let mut initial_window = None;
        for item in payload.chunks_exact(6) {
            let Some(&[n0, n1, v0, v1, v2, v3]) = item.first_chunk::<6>() else { continue };
            let value = u32::from_be_bytes([v0, v1, v2, v3]);
            match u16::from_be_bytes([n0, n1]) {
                setting::INITIAL_WINDOW_SIZE if i64::from(value) > MAX_WINDOW => {
                    return Err(Reason::FLOW_CONTROL_ERROR.into());
                }
                // Touches every stream: applied once per frame, however often it occurs there.
                setting::INITIAL_WINDOW_SIZE => initial_window = Some(value),
                name => self.setting(name, value)?,
            }
        }
        if let Some(value) = initial_window {
            self.set_initial_window(value)?;
        }
        frame::write(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
        self.pump_all(now);
        Ok(())
    }

    fn setting(&mut self, name: u16, value: u32) -> Result<(), ConnectionFailure> {
        match name {
            setting::HEADER_TABLE_SIZE => self.encoder.set_max_table(value),
            setting::ENABLE_PUSH if value > 1 => return Err(Reason::PROTOCOL_ERROR.into()),
            setting::MAX_FRAME_SIZE if !(16_384..=16_777_215).contains(&value) => {
                return Err(Reason::PROTOCOL_ERROR.into());
            }
            // Other settings need no action: header lists of answers are short enough for any
            // client, and frames are no larger than every client accepts.
            _ => {}
        }
        Ok(())
    }

    /// Adjusts the windows of all streams by the change of the initial window (RFC 9113, 6.9.2).
    fn set_initial_window(&mut self, value: u32) -> Result<(), ConnectionFailure> {
        let value = i64::from(value);
        let change = value.saturating_sub(self.peer.initial_window);
        self.peer.initial_window = value;
        for stream in self.streams.values_mut() {
            stream.send_window = stream.send_window.saturating_add(change);
            if stream.send_window > MAX_WINDOW {
                return Err(Reason::FLOW_CONTROL_ERROR.into());
            }
        }
        Ok(())
    }

    fn ping(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        if head.stream != 0 {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        if payload.len() != 8 {
            return Err(Reason::FRAME_SIZE_ERROR.into());
        }
        if head.has(flag::ACK) {
            // As many as this side has sent PINGs for its streams are no abuse.
            let is_awaited = self.on_pong(payload, now);
            return if is_awaited { Ok(()) } else { self.record_control(now) };
        }
        self.record_control(now)?;
        frame::write(&mut self.out, kind::PING, flag::ACK, 0, payload);
        Ok(())
    }

    fn window_update(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        let Ok(bytes) = <[u8; 4]>::try_from(payload) else {
            return Err(Reason::FRAME_SIZE_ERROR.into());
        };
        let increment = i64::from(u32::from_be_bytes(bytes) & frame::MAX_STREAM);
        self.record_control(now)?;
        if head.stream == 0 {
            if increment == 0 {
                return Err(Reason::PROTOCOL_ERROR.into());
            }
            self.send_window = self.send_window.saturating_add(increment);
            if self.send_window > MAX_WINDOW {
                return Err(Reason::FLOW_CONTROL_ERROR.into());
            }
            self.pump_blocked(now);
            return Ok(());
        }
        if self.is_idle(head.stream) {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        let Some(stream) = self.streams.get_mut(&head.stream) else { return Ok(()) };
        if increment == 0 {
            return self.reset_for_error(head.stream, Reason::PROTOCOL_ERROR, now);
        }
        stream.send_window = stream.send_window.saturating_add(increment);
        if stream.send_window > MAX_WINDOW {
            return self.reset_for_error(head.stream, Reason::FLOW_CONTROL_ERROR, now);
        }
        self.pump(head.stream, now);
        Ok(())
    }

    /// Validates a PRIORITY frame, and ignores it: RFC 9113, 5.3.2 deprecates priorities.
    fn priority(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        if head.stream == 0 {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        self.record_control(now)?;
        let dependency = payload.first_chunk::<4>().filter(|_| payload.len() == 5);
        let reason = match dependency {
            None => Reason::FRAME_SIZE_ERROR,
            Some(on) if u32::from_be_bytes(*on) & frame::MAX_STREAM == head.stream => {
                Reason::PROTOCOL_ERROR
            }
            Some(_) => return Ok(()),
        };
        // A stream that is not open yet cannot be reset (RFC 9113, 6.4).
        if self.is_idle(head.stream) {
            Err(reason.into())
        } else {
            self.reset_for_error(head.stream, reason, now)
        }
    }

    /// Returns `true` if no call was ever opened on a stream: the connection itself (0), the even
    /// streams, which belong to this side, and those that the client has not reached.
    pub(super) fn is_idle(&self, stream: u32) -> bool {
        stream.is_multiple_of(2) || stream > self.last_stream
    }

    /// Records a frame that belongs to no call.
    pub(super) fn record_control(&mut self, now: Instant) -> Result<(), ConnectionFailure> {
        let recorded = self.abuse.record_control(now);
        self.tolerate(recorded, now)
    }

    /// Records an empty or costly frame.
    pub(super) fn record_empty(&mut self, now: Instant) -> Result<(), ConnectionFailure> {
        let recorded = self.abuse.record_empty(now);
        self.tolerate(recorded, now)
    }

    /// Returns consumed bytes to the client's connection window, once they are worth a frame.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.unacknowledged = self.unacknowledged.saturating_add(bytes);
        if let Some(increment) = worth_a_frame(self.unacknowledged) {
            frame::write(&mut self.out, kind::WINDOW_UPDATE, 0, 0, &increment.to_be_bytes());
            self.unacknowledged = 0;
        }
    }

    /// Returns consumed bytes to the window of a stream that has more to come.
    pub(super) fn give_back_of(&mut self, id: u32, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.is_remote_closed())
        else {
            return;
        };
        stream.unacknowledged = stream.unacknowledged.saturating_add(bytes);
        if let Some(increment) = worth_a_frame(stream.unacknowledged) {
            frame::write(&mut self.out, kind::WINDOW_UPDATE, 0, id, &increment.to_be_bytes());
            stream.receive_window = stream.receive_window.saturating_add(i64::from(increment));
            stream.unacknowledged = 0;
        }
    }

    /// Charges an open stream. Returns `false` if memory is exhausted.
    pub(super) fn charge_stream(&mut self, id: u32, bytes: usize) -> bool {
        let charged = self.account.charge(bytes);
        self.add_charged(id, bytes, charged)
    }

    /// The same for a part of a message.
    pub(super) fn charge_arriving(&mut self, id: u32, bytes: usize) -> bool {
        let charged = self.account.charge_arriving(bytes);
        self.add_charged(id, bytes, charged)
    }

    fn add_charged(&mut self, id: u32, bytes: usize, charged: Result<(), BudgetExceeded>) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else {
            charged.into_iter().for_each(|()| self.account.release(bytes));
            return false;
        };
        let is_charged = charged.is_ok();
        if is_charged {
            stream.charged = stream.charged.saturating_add(bytes);
        }
        is_charged
    }
}

/// Returns the increment for these bytes if they are worth a frame: half of a window.
fn worth_a_frame(bytes: usize) -> Option<u32> {
    u32::try_from(bytes).ok().filter(|bytes| *bytes >= super::WINDOW.div_euclid(2))
}

const _: () = assert!(DEFAULT_WINDOW < super::WINDOW);
// DATA is returned to the window of the connection as it is handled, so that at least half of the
// window is open before each frame. A frame fits there: no client can exceed that window.
const _: () = assert!(MAX_PAYLOAD <= super::WINDOW.div_euclid(2) as usize);
