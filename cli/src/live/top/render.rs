//! Draws the state: what is known of the nodes at the top, the open view below it, clients that differ and the keys at
//! the bottom.

use std::time::{Duration, SystemTime};

use ratatui::{Frame, layout::Rect, text::Line};
use redlock::{Kind, LockInfo};

use super::{
    details,
    input::KEYS,
    paint::{Column, Paint, Tone, table},
    state::{Order, Place, State, View},
};
use crate::{
    duration, holder,
    live::{
        nodes::{Condition, Node},
        snapshot::{Connected, Lock},
        watch::clock_time,
    },
    table::visible,
};

/// Below this height the nodes share one line.
const LOW: usize = 14;
/// Below this width the line of keys is short.
const NARROW: usize = 60;

/// Draws everything. Tells the state how much of the view fits.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, paint: Paint) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    if width == 0 || height == 0 {
        return;
    }
    let mut top = vec![summary(state, paint, width)];
    top.extend(nodes(state, paint, width, height));
    top.extend(trouble(state, paint, width, height));
    let mut bottom = odd(state, paint, width, height);
    // The view gets at least two lines, and the last line stays.
    top.truncate(height.saturating_sub(bottom.len() + 3));
    let room = height.saturating_sub(top.len() + bottom.len() + 1);
    let body = match state.view.clone() {
        View::Locks => locks(state, paint, width, room),
        View::Clients => clients(state, paint, width, room),
        View::Details(name) => scrolled(state, details::lines(state, &name, paint, width), room),
        View::Help => scrolled(state, help(paint, width), room),
    };
    bottom.push(last_line(state, paint, width));
    let empty = room.saturating_sub(body.len());
    let lines =
        top.into_iter().chain(body.into_iter().take(room)).chain((0..empty).map(|_| Line::default())).chain(bottom);
    for (row, line) in (area.y..area.bottom()).zip(lines) {
        frame.render_widget(line, Rect { y: row, height: 1, ..area });
    }
}

/// How much there is, and how it is shown.
fn summary(state: &State, paint: Paint, width: usize) -> Line<'static> {
    let Some(snapshot) = &state.snapshot else { return paint.line("looking at the servers", Tone::Faint, width) };
    let (held, waiting) = state.counts();
    let odd = state.odd().len();
    let clients = match &snapshot.clients {
        Some(clients) => format!("{} clients", clients.len()),
        None => "clients unknown".to_owned(),
    };
    let found = match snapshot.scanned {
        Some(when) => format!("all of {}", clock_time(when)),
        None => "waited for".to_owned(),
    };
    let mut parts = vec![];
    if state.paused {
        parts.push(("PAUSED".to_owned(), Tone::Warning));
    }
    parts.extend([
        (format!("{held} held, {waiting} waiting"), Tone::Strong),
        (clock_time(snapshot.when), Tone::Plain),
        (if odd == 0 { String::new() } else { format!("! {odd} differ") }, Tone::Bad),
        (clients, Tone::Plain),
        (format!("locks: {found}"), Tone::Plain),
        (format!("order: {}", state.order.as_str()), Tone::Plain),
    ]);
    paint.parts(parts, width)
}

/// A line for each node; on a low screen one for all.
fn nodes(state: &State, paint: Paint, width: usize, height: usize) -> Vec<Line<'static>> {
    let Some(snapshot) = &state.snapshot else { return Vec::new() };
    let nodes = &snapshot.nodes;
    if height >= LOW && nodes.len() <= height / 4 {
        let widest = nodes.iter().map(|node| node.status.node.len()).max().unwrap_or_default();
        return nodes.iter().map(|one| node(one, widest, paint, width)).collect();
    }
    let down: Vec<&str> =
        nodes.iter().filter(|node| node.status.state.is_err()).map(|node| node.status.node.as_str()).collect();
    let up = nodes.len() - down.len();
    let all = (format!("{up} of {} nodes up", nodes.len()), if down.is_empty() { Tone::Plain } else { Tone::Bad });
    let down = if down.is_empty() { String::new() } else { format!("! down: {}", down.join(", ")) };
    vec![paint.parts(vec![all, (down, Tone::Bad)], width)]
}

fn node(node: &Node, widest: usize, paint: Paint, width: usize) -> Line<'static> {
    let (condition, status) = (node.condition(), &node.status);
    let name = |sign: &str| format!("{sign} {:widest$}", status.node);
    let Ok(info) = &status.state else { return paint.line(&format!("{}  {condition}", name("!")), Tone::Bad, width) };
    let up = ("up".to_owned(), Tone::Plain);
    let mut parts = vec![up, (format!("{:.1} ms", status.round_trip.as_secs_f64() * 1000.0), Tone::Plain)];
    if condition != Condition::Up {
        parts.push((condition.to_string(), Tone::Warning));
    }
    if let Some(role) = node.role() {
        parts.push((role.to_string(), if role.grants() { Tone::Plain } else { Tone::Bad }));
    }
    if let Some(clock) = node.clock() {
        // Not -0.000.
        let clock = if clock.abs() < 0.0005 { 0.0 } else { clock };
        let tone = if node.is_clock_off() { Tone::Warning } else { Tone::Plain };
        parts.push((format!("clock {clock:+.3}s"), tone));
    }
    parts.push((info.version.clone().unwrap_or_default(), Tone::Faint));
    let needs_attention =
        condition != Condition::Up || node.is_clock_off() || node.role().is_some_and(|role| !role.grants());
    let (sign, tone) = if needs_attention { ("!", Tone::Warning) } else { (" ", Tone::Plain) };
    parts.insert(0, (name(sign), tone));
    paint.parts(parts, width)
}

/// Why the locks are not known, and what to do.
fn trouble(state: &State, paint: Paint, width: usize, height: usize) -> Vec<Line<'static>> {
    let Some(trouble) = state.snapshot.as_ref().and_then(|snapshot| snapshot.trouble.as_ref()) else {
        return Vec::new();
    };
    let old =
        state.locks_when().map_or_else(String::new, |when| format!(" The locks are those of {}.", clock_time(when)));
    paint.wrapped(&format!("! {trouble}{old}"), Tone::Bad, width, if height < LOW { 2 } else { 4 })
}

/// The clients whose settings differ, as long as there is room.
fn odd(state: &State, paint: Paint, width: usize, height: usize) -> Vec<Line<'static>> {
    let odd = state.odd();
    if odd.is_empty() || height < LOW || state.view == View::Clients {
        return Vec::new();
    }
    let most = height / 6;
    let mut lines: Vec<_> =
        odd.iter().take(most).map(|client| paint.line(&odd_text(client), Tone::Bad, width)).collect();
    if odd.len() > most {
        lines.push(paint.line(&format!("! {} more clients differ; c shows all", odd.len() - most), Tone::Bad, width));
    }
    lines
}

fn odd_text(client: &Connected) -> String {
    format!("! {}: {}", process(client), client.odd.as_deref().unwrap_or_default())
}

/// The process of a client.
pub(super) fn process(client: &Connected) -> String {
    let identity = &client.client.identity;
    format!("pid {} ({}) on {}", identity.pid, identity.app, identity.host)
}

/// The input of the filter, a remark, or the keys.
fn last_line(state: &State, paint: Paint, width: usize) -> Line<'static> {
    if state.is_typing() {
        // The end of what is typed must be seen.
        let text = format!("/{}_", visible(&state.filter));
        let hidden = text.chars().count().saturating_sub(width);
        return paint.line(&text.chars().skip(hidden).collect::<String>(), Tone::Strong, width);
    }
    if let Some(remark) = &state.remark {
        return paint.line(remark, Tone::Warning, width);
    }
    if !state.filter.is_empty() && state.view == View::Locks {
        return paint.line(&format!("filter /{}  Esc: all  ?: help", state.filter), Tone::Strong, width);
    }
    let keys = match (&state.view, width < NARROW) {
        (View::Help | View::Details(_), _) if state.lines > state.page => "Esc: back  j k: scroll  q: quit",
        (View::Help | View::Details(_) | View::Clients, _) => "Esc: back  q: quit",
        (View::Locks, true) => "Enter: details  ?: help  q: quit",
        (View::Locks, false) => "Enter: details  /: filter  s: order  a: all  c: clients  ?: help  q: quit",
    };
    paint.line(keys, Tone::Faint, width)
}

const LOCKS: [Column; 7] = [
    Column { title: "NAME", from: 0, right: false, gives: true },
    Column { title: "KIND", from: 70, right: false, gives: false },
    Column { title: "HELD BY", from: 0, right: false, gives: true },
    Column { title: "FOR", from: 50, right: true, gives: false },
    Column { title: "TTL", from: 60, right: true, gives: false },
    Column { title: "WAIT", from: 0, right: true, gives: false },
    Column { title: "NODES", from: 78, right: true, gives: false },
];

fn locks(state: &mut State, paint: Paint, width: usize, room: usize) -> Vec<Line<'static>> {
    let count = state.shown().len();
    let (range, selected) = part(state, |state| &mut state.place, count, room);
    if count == 0 {
        return state.snapshot.as_ref().map_or_else(Vec::new, |snapshot| {
            let text = match (snapshot.trouble.is_some(), state.filter.is_empty(), snapshot.scanned) {
                (true, ..) => return Vec::new(),
                (_, false, _) => "No lock matches the filter.",
                (.., None) => "Nobody waits for a lock. a finds all locks.",
                _ => "There are no locks.",
            };
            paint.wrapped(text, Tone::Plain, width, 2)
        });
    }
    let (now, nodes) = state.snapshot.as_ref().map_or((SystemTime::now(), 1), |one| (one.when, one.nodes.len()));
    let rows: Vec<Vec<String>> = state.shown()[range].iter().map(|lock| cells(lock, now, nodes)).collect();
    let is_old = state.snapshot.as_ref().is_some_and(|snapshot| snapshot.trouble.is_some());
    let mut columns = LOCKS;
    if nodes < 2 {
        columns[6].from = usize::MAX;
    }
    // The column of the order.
    let sorted = &mut columns[match state.order {
        Order::Waiting => 5,
        Order::Oldest => 3,
        Order::Ending => 4,
        Order::Name => 0,
    }];
    sorted.title = match state.order {
        Order::Waiting => "WAIT*",
        Order::Oldest => "FOR*",
        Order::Ending => "TTL*",
        Order::Name => "NAME*",
    };
    let tone = if is_old { Tone::Faint } else { Tone::Plain };
    let rows: Vec<_> = rows.into_iter().map(|row| (row, tone)).collect();
    table(&columns, &rows, Some(selected), paint, width)
}

/// The lines of a list that fit below its titles, and which of them is selected. Scrolls as little as it must, and tells
/// the state how much fits.
fn part(
    state: &mut State,
    place: fn(&mut State) -> &mut Place,
    count: usize,
    room: usize,
) -> (std::ops::Range<usize>, usize) {
    (state.page, state.lines) = (room.saturating_sub(1), count);
    let page = state.page;
    let place = place(state);
    let range = place.scroll(count, page);
    (range.clone(), place.selected - range.start)
}

/// The cells of a lock, visible ones.
fn cells(lock: &Lock, now: SystemTime, nodes: usize) -> Vec<String> {
    let info = lock.info.as_ref();
    let text = |text: String| visible(&text);
    vec![
        text(lock.name.clone()),
        kind(lock),
        text(match (info, &lock.error) {
            (Some(info), _) => who(info),
            (None, Some(error)) => format!("! {}", error.message),
            (None, None) => "nobody".to_owned(),
        }),
        info.and_then(|info| held_for(info, now)).map_or_else(holder::dash, duration::show),
        info.map_or_else(holder::dash, |info| holder::ttl(info.ttl)),
        lock.waiting.to_string(),
        lock.nodes.map_or_else(holder::dash, |holding| format!("{holding}/{nodes}")),
    ]
}

/// The first holder, shorter than in a sentence. KIND has the number of the others.
fn who(info: &LockInfo) -> String {
    match (&info.app, info.pid, &info.host) {
        (Some(app), Some(pid), Some(host)) => format!("{app} {pid} on {host}"),
        _ => holder::who(info),
    }
}

/// The kind of a lock, and how many share it.
pub(super) fn kind(lock: &Lock) -> String {
    let Some(info) = &lock.info else {
        return if lock.error.is_some() { "not known" } else { "free" }.to_owned();
    };
    match (info.kind, info.owners.len()) {
        (Kind::Read, count) => format!("read x{count}"),
        (Kind::Semaphore, count) => format!("semaphore x{count}"),
        (kind, _) => kind.as_str().to_owned(),
    }
}

/// For how long the first holder had the lock at that time.
pub(super) fn held_for(info: &LockInfo, now: SystemTime) -> Option<Duration> {
    info.since.map(|since| now.duration_since(since).unwrap_or_default())
}

const CLIENTS: [Column; 7] = [
    Column { title: "CLIENT", from: 0, right: false, gives: true },
    Column { title: "VERSION", from: 70, right: false, gives: false },
    Column { title: "QUORUM", from: 50, right: false, gives: false },
    Column { title: "WIRE", from: 60, right: false, gives: false },
    Column { title: "MAX TTL", from: 90, right: true, gives: false },
    Column { title: "SEEN ON", from: 100, right: true, gives: false },
    Column { title: "DIFFERENCE", from: 0, right: false, gives: true },
];

fn clients(state: &mut State, paint: Paint, width: usize, room: usize) -> Vec<Line<'static>> {
    if state.snapshot.as_ref().is_some_and(|snapshot| snapshot.clients.is_none()) {
        let text = "No node lists its clients. The user needs the right client|list.";
        return paint.wrapped(text, Tone::Plain, width, room);
    }
    let count = state.clients_shown().len();
    let (range, selected) = part(state, |state| &mut state.other_place, count, room);
    let shown = state.clients_shown();
    let shown = &shown[range];
    let rows: Vec<_> = shown
        .iter()
        .map(|client| {
            let identity = &client.client.identity;
            let row = vec![
                visible(&process(client)),
                visible(&identity.version),
                format!("{} of {}", identity.quorum, identity.nodes),
                identity.wire.as_str().to_owned(),
                duration::show(identity.max_ttl),
                client.client.nodes.to_string(),
                client.odd.as_ref().map_or_else(holder::dash, |odd| visible(&format!("! {odd}"))),
            ];
            (row, if client.odd.is_some() { Tone::Bad } else { Tone::Plain })
        })
        .collect();
    table(&CLIENTS, &rows, Some(selected), paint, width)
}

fn help(paint: Paint, width: usize) -> Vec<Line<'static>> {
    let widest = KEYS.iter().map(|(key, _)| key.len()).max().unwrap_or_default();
    let mut lines = Vec::new();
    for (key, does) in KEYS {
        if width < NARROW {
            lines.extend(paint.wrapped(&format!("{key}: {does}"), Tone::Plain, width, 3));
        } else {
            lines.push(paint.line(&format!("{key:widest$}  {does}"), Tone::Plain, width));
        }
    }
    lines.push(Line::default());
    let text = "By default the locks that somebody waits for. WAIT counts clients, which are processes as a rule. A \
                client that differs (!) has other settings than most of its program: its locks may not exclude theirs.";
    lines.extend(paint.wrapped(text, Tone::Plain, width, 9));
    lines
}

/// The part of a text that fits.
fn scrolled(state: &mut State, lines: Vec<Line<'static>>, room: usize) -> Vec<Line<'static>> {
    (state.page, state.lines) = (room, lines.len());
    let first = state.other_place.first.min(lines.len().saturating_sub(room));
    state.other_place.first = first;
    lines.into_iter().skip(first).take(room).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, style::Color};
    use unicode_width::UnicodeWidthStr;

    use super::*;
    use crate::{
        doctor::{Outlook, Role, Vote},
        live::top::{
            made::{client, lock, snapshot, views},
            state::{Action, Details},
        },
    };

    fn drawn(state: &mut State, width: u16, height: u16, colors: bool) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, state, Paint { colors })).expect("a screen");
        terminal.backend().buffer().clone()
    }

    /// The lines of the screen, without spaces at their ends.
    fn text(buffer: &Buffer) -> Vec<String> {
        let area = buffer.area;
        let line = |row| (0..area.width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
        (0..area.height).map(|row| line(row).trim_end().to_owned()).collect()
    }

    fn screen(state: &mut State, width: u16, height: u16) -> Vec<String> {
        text(&drawn(state, width, height, false))
    }

    fn state() -> State {
        let mut state = State::default();
        let locks = vec![lock("invoice:42", "billing", 3, 133), lock("report", "nightly", 0, 7)];
        state.see(snapshot(&["127.0.0.1:6379"], locks, vec![client("billing", None)]));
        state
    }

    #[test]
    fn a_usual_screen_has_nodes_locks_and_keys() {
        let lines = screen(&mut state(), 80, 24);
        let expected = [
            "2 held, 3 waiting  22:13:20Z  1 clients  locks: waited for  order: waiters",
            "  127.0.0.1:6379  up  0.4 ms",
            "  NAME        KIND  HELD BY                 FOR  TTL  WAIT*",
            "> invoice:42  lock  billing 812 on web-3  2m13s  25s      3",
            "  report      lock  nightly 812 on web-3   7.0s  25s      0",
        ];
        assert_eq!(lines[..5], expected, "{lines:#?}");
        assert!(lines[5..23].iter().all(String::is_empty), "{lines:#?}");
        assert!(lines[23].starts_with("Enter: details  /: filter") && lines[23].ends_with("q: quit"), "{lines:#?}");
    }

    #[test]
    fn a_narrow_screen_keeps_name_holder_and_waiters() {
        let lines = screen(&mut state(), 40, 15);
        assert_eq!(
            lines[2..4],
            ["  NAME        HELD BY              WAIT*", "> invoice:42  billing 812 on web…      3"]
        );
        assert!(lines.iter().all(|line| line.width() <= 40), "{lines:#?}");
    }

    #[test]
    fn every_view_fits_into_every_size() {
        for view in [View::Locks, View::Clients, View::Details("invoice:42".to_owned()), View::Help] {
            for width in (1..60).chain([200]) {
                for height in (1..20).chain([100]) {
                    let mut state = state();
                    let mut look = state.snapshot.clone().expect("a look");
                    look.clients = Some(vec![client("日本語", Some("quorum 4 instead of 3"))]);
                    look.trouble = Some("a long sentence that does not fit into a narrow line".to_owned());
                    state.see(look);
                    state.view = view.clone();
                    state.details = Some(Details { name: "invoice:42".to_owned(), nodes: views(), permits: vec![] });
                    let lines = screen(&mut state, width, height);
                    assert!(!lines.concat().is_empty(), "{view:?} {width}x{height}");
                }
            }
        }
    }

    #[test]
    fn a_low_screen_still_shows_the_selected_lock_and_the_keys() {
        let mut state = state();
        state.act(Action::Move(super::super::state::Step::Down));
        let lines = screen(&mut state, 80, 4);
        assert!(lines.iter().any(|line| line.starts_with("> report")), "{lines:#?}");
        assert!(lines[3].contains("q: quit"), "{lines:#?}");
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        let mut state = State::default();
        let evil = "a\u{1b}[2J\u{9b}b\r\n";
        let look = snapshot(&["127.0.0.1:6379"], vec![lock(evil, evil, 1, 1)], vec![client(evil, Some(evil))]);
        state.see(look);
        state.see_details(Details { name: evil.to_owned(), nodes: views(), permits: vec![] });
        for view in [View::Locks, View::Clients, View::Details(evil.to_owned())] {
            state.view = view;
            let shown = screen(&mut state, 200, 30).concat();
            assert!(shown.contains("a\\u{1b}[2J\\u{9b}b\\r\\n"), "{shown}");
            assert!(!shown.chars().any(char::is_control), "{shown}");
        }
    }

    #[test]
    fn what_is_wrong_has_a_sign_besides_its_colour() {
        let mut state = State::default();
        let nodes = ["127.0.0.1:1", "-127.0.0.1:2", "127.0.0.1:3"];
        let clients = vec![client("billing", Some("quorum 4 instead of 3")), client("billing", None)];
        let mut look = snapshot(&nodes, vec![lock("x", "billing", 1, 1)], clients);
        let age = Duration::from_secs(3);
        for (node, (clock, vote)) in [(0, (0.0, Vote::After(Duration::from_secs(43)))), (2, (3.0, Vote::Votes))] {
            let outlook =
                Outlook { role: Some(Role::Master(0)), clock: Some(clock), is_off: clock > 1.0, vote: Some(vote) };
            look.nodes[node] = look.nodes[node].clone().with_outlook(outlook, age);
        }
        state.see(look);
        let plain = drawn(&mut state, 100, 24, false);
        let lines = text(&plain);
        let shown = |part: &str| assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
        shown("! 1 differ");
        shown("! 127.0.0.1:1  up  0.4 ms  in quarantine, votes in 40s  master  clock +0.000s");
        shown("! 127.0.0.1:2  down: connection refused");
        shown("! 127.0.0.1:3  up  0.4 ms  master  clock +3.000s");
        shown("! pid 97 (billing) on web-4: quorum 4 instead of 3");
        shown("NODES");
        assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        let colored = drawn(&mut state, 100, 24, true);
        assert_eq!(text(&colored), lines);
        for (row, line) in lines.iter().enumerate() {
            let is_red = (0..100).any(|column| colored[(column, row as u16)].fg == Color::Red);
            let is_wrong = ["down: ", "instead of", "differ"].iter().any(|part| line.contains(part));
            assert_eq!(is_red, is_wrong, "{line}");
        }
    }

    #[test]
    fn an_outage_says_what_to_do_above_the_locks_of_before() {
        let mut state = state();
        let mut outage = state.snapshot.clone().expect("a look");
        outage.nodes = snapshot(&["-127.0.0.1:6379"], vec![], vec![]).nodes;
        outage.trouble = Some("no node answers. Check that the servers are up.".to_owned());
        state.see(outage);
        let lines = screen(&mut state, 80, 24);
        assert_eq!(lines[1], "! 127.0.0.1:6379  down: connection refused");
        assert_eq!(lines[2], "! no node answers. Check that the servers are up. The locks are those of");
        assert_eq!(lines[3], "22:13:20Z.");
        assert!(lines[5].starts_with("> invoice:42"), "{lines:#?}");
    }

    #[test]
    fn details_name_the_holders_and_what_each_node_has() {
        let mut state = state();
        state.act(Action::Enter);
        let lines = screen(&mut state, 100, 30);
        assert!(lines.contains(&"looking at the nodes".to_owned()), "{lines:#?}");
        state.see_details(Details { name: "invoice:42".to_owned(), nodes: views(), permits: vec![] });
        let lines = screen(&mut state, 100, 30);
        let token = state.lock("invoice:42").and_then(|lock| lock.info.as_ref()).expect("a holder").token;
        for part in [
            "Lock invoice:42",
            "held by  pid 812 (billing) on web-3",
            "for      2m13s",
            &format!("token    {token}"),
            "waiting  3",
        ] {
            assert!(lines.contains(&part.to_owned()), "{part}: {lines:#?}");
        }
        assert!(lines.iter().any(|line| line.starts_with("NODE") && line.contains("TOKEN")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("lock") && line.contains(&token.to_string())), "{lines:#?}");
    }

    #[test]
    fn the_input_of_the_filter_shows_its_end() {
        let mut state = state();
        state.act(Action::Filter);
        for character in "a-long-pattern:*".chars() {
            state.act(Action::Type(character));
        }
        assert_eq!(screen(&mut state, 10, 6)[5], "pattern:*_");
        let wide = screen(&mut state, 40, 6);
        assert_eq!(wide[5], "/a-long-pattern:*_");
        assert!(wide.contains(&"No lock matches the filter.".to_owned()), "{wide:#?}");
        state.act(Action::Enter);
        assert_eq!(screen(&mut state, 60, 6)[5], "filter /a-long-pattern:*  Esc: all  ?: help");
    }

    #[test]
    fn an_empty_list_says_how_to_find_more() {
        let mut state = State::default();
        assert_eq!(screen(&mut state, 40, 6)[0], "looking at the servers");
        state.see(snapshot(&["one"], vec![], vec![]));
        assert!(screen(&mut state, 80, 24).contains(&"Nobody waits for a lock. a finds all locks.".to_owned()));
    }
}
