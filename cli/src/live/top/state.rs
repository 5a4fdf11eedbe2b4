//! What the view shows, and where the user is in it. Looks at the servers and actions of the user change it; it talks to
//! neither a server nor a terminal.

use std::{cmp::Reverse, time::SystemTime};

use redlock::{Kind, NodeView, PermitInfo};

use crate::{
    glob,
    live::snapshot::{Connected, Lock, Snapshot},
};

/// The order of the locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// The most waited for first, of these the oldest.
    #[default]
    Waiting,
    /// The one first that is held for the longest time.
    Oldest,
    /// The one first whose lease ends next.
    Ending,
    Name,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Waiting => Self::Oldest,
            Self::Oldest => Self::Ending,
            Self::Ending => Self::Name,
            Self::Name => Self::Waiting,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiters",
            Self::Oldest => "age",
            Self::Ending => "ttl",
            Self::Name => "name",
        }
    }
}

/// What the middle of the screen shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    Locks,
    Clients,
    /// All about the lock with this name.
    Details(String),
    Help,
}

/// What the nodes have of one lock.
#[derive(Clone, Debug)]
pub(super) struct Details {
    pub(super) name: String,
    pub(super) nodes: Vec<NodeView>,
    /// The permits of a semaphore.
    pub(super) permits: Vec<PermitInfo>,
}

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Close what is open, then forget the filter, then quit.
    Back,
    Suspend,
    Move(Step),
    /// Show the details of the selected lock; end the input of the filter.
    Enter,
    Filter,
    Type(char),
    Erase,
    EraseAll,
    Order,
    Scan,
    Look,
    Pause,
    Clients,
    Help,
}

/// A movement of the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// What an action asks of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    Quit,
    Suspend,
    Look,
    Scan,
    Pause(bool),
    /// Look at the details of this lock from now on, or of none.
    Open(Option<String>),
}

/// The place in a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) selected: usize,
    /// The first line that is shown.
    pub(super) first: usize,
}

impl Place {
    /// Moves the selection in a list of so many lines, of which `page` fit on the screen.
    fn step(&mut self, step: Step, lines: usize, page: usize) {
        let (at, page) = (self.selected, page.max(1));
        let wanted = match step {
            Step::Up => at.saturating_sub(1),
            Step::Down => at + 1,
            Step::PageUp => at.saturating_sub(page),
            Step::PageDown => at + page,
            Step::First => 0,
            Step::Last => lines,
        };
        self.selected = wanted.min(lines.saturating_sub(1));
    }

    /// Scrolls so that the selection is one of `page` lines. Returns the lines that are shown.
    pub(super) fn scroll(&mut self, lines: usize, page: usize) -> std::ops::Range<usize> {
        self.selected = self.selected.min(lines.saturating_sub(1));
        self.first = self.first.min(self.selected).min(lines.saturating_sub(page));
        self.first = self.first.max((self.selected + 1).saturating_sub(page.max(1)));
        self.first..(self.first + page).min(lines)
    }
}

/// The whole state of the view.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The last look.
    pub(super) snapshot: Option<Snapshot>,
    pub(super) details: Option<Details>,
    pub(super) view: View,
    /// The view to which the help returns.
    behind: View,
    pub(super) order: Order,
    pub(super) filter: String,
    /// The filter before its input began; `None` outside of the input.
    before: Option<String>,
    pub(super) paused: bool,
    /// A line for the user, until the next key.
    pub(super) remark: Option<String>,
    /// The place in the locks, and in the other views.
    pub(super) place: Place,
    pub(super) other_place: Place,
    /// The selected lock, which the selection follows once the user has moved it.
    followed: Option<String>,
    /// How many lines of the view fit on the screen, and how many there are, by the last drawing.
    pub(super) page: usize,
    pub(super) lines: usize,
}

impl State {
    /// Whether the filter is being typed.
    pub(super) fn is_typing(&self) -> bool {
        self.before.is_some()
    }

    /// A look at the servers.
    pub(super) fn see(&mut self, snapshot: Snapshot) {
        self.snapshot = Some(snapshot);
        self.follow();
    }

    /// What the nodes have of the open lock.
    pub(super) fn see_details(&mut self, details: Details) {
        if self.view == View::Details(details.name.clone()) {
            self.details = Some(details);
        }
    }

    /// The locks that match the filter, in the chosen order.
    pub(super) fn shown(&self) -> Vec<&Lock> {
        let mut shown: Vec<&Lock> = self.locks().iter().filter(|lock| self.matches(&lock.name)).collect();
        let since = |lock: &Lock| lock.info.as_ref().and_then(|info| info.since);
        let age = |lock: &Lock| (since(lock).is_none(), since(lock));
        match self.order {
            Order::Waiting => shown.sort_by_cached_key(|lock| (Reverse(lock.waiting), age(lock), lock.name.clone())),
            Order::Oldest => shown.sort_by_cached_key(|lock| (age(lock), Reverse(lock.waiting), lock.name.clone())),
            Order::Ending => shown.sort_by_cached_key(|lock| {
                let ttl = lock.info.as_ref().and_then(|info| info.ttl);
                (ttl.is_none(), ttl, lock.name.clone())
            }),
            Order::Name => shown.sort_by(|one, other| one.name.cmp(&other.name)),
        }
        shown
    }

    /// A filter with wildcards is a pattern for the whole name, another one a part of the name.
    fn matches(&self, name: &str) -> bool {
        if self.filter.contains(['*', '?', '[', '\\']) {
            glob::matches(&self.filter, name)
        } else {
            name.contains(&self.filter)
        }
    }

    fn locks(&self) -> &[Lock] {
        self.snapshot.as_ref().map(|snapshot| snapshot.locks.as_slice()).unwrap_or_default()
    }

    /// When the locks were found.
    pub(super) fn locks_when(&self) -> Option<SystemTime> {
        self.snapshot.as_ref().and_then(|snapshot| snapshot.locks_when)
    }

    /// A lock by its name.
    pub(super) fn lock(&self, name: &str) -> Option<&Lock> {
        self.locks().iter().find(|lock| lock.name == name)
    }

    /// How many locks are held, and how many clients wait.
    pub(super) fn counts(&self) -> (usize, usize) {
        let is_held = |lock: &&Lock| lock.info.as_ref().is_some_and(|info| info.kind != Kind::Rest);
        (self.locks().iter().filter(is_held).count(), self.locks().iter().map(|lock| lock.waiting).sum())
    }

    /// The clients whose settings differ from those of others.
    pub(super) fn odd(&self) -> Vec<&Connected> {
        self.clients().iter().filter(|client| client.odd.is_some()).collect()
    }

    /// The clients, odd ones first.
    pub(super) fn clients_shown(&self) -> Vec<&Connected> {
        let mut clients: Vec<&Connected> = self.clients().iter().collect();
        clients.sort_by_key(|client| client.odd.is_none());
        clients
    }

    fn clients(&self) -> &[Connected] {
        self.snapshot.as_ref().and_then(|snapshot| snapshot.clients.as_deref()).unwrap_or_default()
    }

    /// The process that drew an owner, by the client in it.
    pub(super) fn process_of(&self, owner: &str) -> Option<&Connected> {
        let (client, _) = owner.rsplit_once(':')?;
        self.clients().iter().find(|known| known.client.identity.client == client)
    }

    /// Does what the user wants.
    pub(super) fn act(&mut self, action: Action) -> Option<Demand> {
        self.remark = None;
        match action {
            Action::Quit => return Some(Demand::Quit),
            Action::Suspend => return Some(Demand::Suspend),
            Action::Back => return self.back(),
            Action::Move(step) => self.step(step),
            Action::Enter if self.is_typing() => self.before = None,
            Action::Enter => return self.open(),
            Action::Filter => {
                self.before = Some(self.filter.clone());
                self.view = View::Locks;
                return Some(Demand::Open(None));
            }
            Action::Type(character) => self.filter_with(|filter| filter.push(character)),
            Action::Erase => self.filter_with(|filter| _ = filter.pop()),
            Action::EraseAll => self.filter_with(String::clear),
            Action::Order => {
                self.order = self.order.next();
                self.follow();
            }
            Action::Scan => return Some(Demand::Scan),
            Action::Look => return Some(Demand::Look),
            Action::Pause => {
                self.paused = !self.paused;
                return Some(Demand::Pause(self.paused));
            }
            Action::Clients => return self.toggle(View::Clients),
            Action::Help => {
                if self.view == View::Help {
                    self.view = std::mem::take(&mut self.behind);
                } else {
                    self.behind = std::mem::replace(&mut self.view, View::Help);
                }
                self.other_place = Place::default();
            }
        }
        None
    }

    fn back(&mut self) -> Option<Demand> {
        if let Some(before) = self.before.take() {
            self.filter = before;
            self.follow();
            return None;
        }
        match &self.view {
            View::Help => self.act(Action::Help),
            View::Clients => self.toggle(View::Clients),
            View::Details(_) => self.toggle(View::Locks),
            View::Locks if self.filter.is_empty() => Some(Demand::Quit),
            View::Locks => {
                self.filter_with(String::clear);
                None
            }
        }
    }

    /// Shows a view, or the locks if it is shown.
    fn toggle(&mut self, view: View) -> Option<Demand> {
        let shown = std::mem::replace(&mut self.view, View::Locks);
        if shown != view {
            self.view = view;
        }
        self.other_place = Place::default();
        matches!(shown, View::Details(_)).then_some(Demand::Open(None))
    }

    fn open(&mut self) -> Option<Demand> {
        if self.view != View::Locks {
            return None;
        }
        let name = self.shown().get(self.place.selected)?.name.clone();
        self.followed = Some(name.clone());
        (self.view, self.details, self.other_place) = (View::Details(name.clone()), None, Place::default());
        Some(Demand::Open(Some(name)))
    }

    fn filter_with(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.filter);
        self.follow();
    }

    fn step(&mut self, step: Step) {
        let page = self.page;
        match self.view {
            View::Locks => {
                let lines = self.shown().len();
                self.place.step(step, lines, page);
                self.followed = match step {
                    Step::First => None,
                    _ => self.shown().get(self.place.selected).map(|lock| lock.name.clone()),
                };
            }
            View::Clients => self.other_place.step(step, self.clients().len(), page),
            // Their text scrolls at once.
            View::Details(_) | View::Help => {
                let last = self.lines.saturating_sub(page);
                self.other_place.selected = self.other_place.first;
                self.other_place.step(step, last + 1, page);
                self.other_place.first = self.other_place.selected;
            }
        }
    }

    /// Selects the followed lock again. If it is gone, another one takes its place.
    fn follow(&mut self) {
        let shown = self.shown();
        let found = self.followed.as_ref().and_then(|name| shown.iter().position(|lock| lock.name == *name));
        let last = shown.len().saturating_sub(1);
        self.place.selected = found.unwrap_or(if self.followed.is_none() { 0 } else { self.place.selected.min(last) });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::live::top::made::{client, lock, snapshot};

    fn names(state: &State) -> Vec<&str> {
        state.shown().iter().map(|lock| lock.name.as_str()).collect()
    }

    fn selected(state: &State) -> &str {
        names(state)[state.place.selected]
    }

    fn state() -> State {
        let mut ending = lock("order:3", "a", 0, 50);
        ending.info.as_mut().expect("a holder").ttl = Some(Duration::from_secs(1));
        let mut state = State { page: 2, ..State::default() };
        let locks = vec![lock("order:1", "a", 1, 10), lock("order:2", "a", 5, 1), ending, lock("report", "b", 1, 20)];
        state.see(snapshot(&["one"], locks, vec![]));
        state
    }

    fn type_text(state: &mut State, text: &str) {
        for character in text.chars() {
            assert_eq!(state.act(Action::Type(character)), None);
        }
    }

    #[test]
    fn the_order_changes_in_a_circle() {
        let mut state = state();
        for expected in [
            ["order:2", "report", "order:1", "order:3"],
            ["order:3", "report", "order:1", "order:2"],
            ["order:3", "order:1", "order:2", "report"],
            ["order:1", "order:2", "order:3", "report"],
            ["order:2", "report", "order:1", "order:3"],
        ] {
            assert_eq!(names(&state), expected, "{:?}", state.order);
            assert_eq!(state.act(Action::Order), None);
        }
    }

    #[test]
    fn a_filter_is_a_part_or_a_pattern_and_esc_restores_the_one_before() {
        let mut state = state();
        state.act(Action::Filter);
        type_text(&mut state, "rep");
        assert_eq!(names(&state), ["report"]);
        state.act(Action::Enter);
        assert!(!state.is_typing());
        state.act(Action::Filter);
        state.act(Action::EraseAll);
        type_text(&mut state, "*:[13]");
        assert_eq!(names(&state), ["order:1", "order:3"]);
        state.act(Action::Erase);
        assert!(names(&state).is_empty(), "an open bracket matches nothing");
        assert_eq!(state.act(Action::Back), None);
        assert_eq!((names(&state), state.filter.as_str()), (vec!["report"], "rep"));
        assert_eq!(state.act(Action::Back), None);
        assert_eq!(names(&state).len(), 4);
        assert_eq!(state.act(Action::Back), Some(Demand::Quit));
    }

    #[test]
    fn the_selection_follows_its_lock_once_it_was_moved() {
        let mut state = state();
        let mut busy = lock("report", "b", 9, 20);
        state.see(snapshot(&["one"], vec![lock("order:1", "a", 1, 10), busy.clone()], vec![]));
        assert_eq!(selected(&state), "report", "the first line");
        state.act(Action::Move(Step::Down));
        assert_eq!(selected(&state), "order:1");
        busy.waiting = 0;
        state.see(snapshot(&["one"], vec![lock("order:1", "a", 1, 10), busy.clone()], vec![]));
        assert_eq!((selected(&state), state.place.selected), ("order:1", 0));
        // Another one takes the place of a lock that is free.
        state.see(snapshot(&["one"], vec![busy], vec![]));
        assert_eq!(selected(&state), "report");
        state.see(snapshot(&["one"], vec![], vec![]));
        assert_eq!(state.act(Action::Enter), None, "there is nothing to open");
    }

    #[test]
    fn movements_stay_inside_the_list() {
        let mut state = state();
        for (step, at) in [
            (Step::Up, 0),
            (Step::PageDown, 2),
            (Step::PageDown, 3),
            (Step::Down, 3),
            (Step::PageUp, 1),
            (Step::Last, 3),
            (Step::First, 0),
        ] {
            state.act(Action::Move(step));
            assert_eq!(state.place.selected, at, "{step:?}");
        }
    }

    #[test]
    fn a_list_scrolls_as_little_as_it_must() {
        let mut place = Place::default();
        for (selected, shown) in [(0, 0..3), (2, 0..3), (3, 1..4), (9, 7..10), (8, 7..10), (6, 6..9)] {
            place.selected = selected;
            assert_eq!(place.scroll(10, 3), shown);
        }
        assert_eq!(place.scroll(2, 3), 0..2);
        assert_eq!(place.selected, 1);
        assert_eq!(place.scroll(0, 3), 0..0);
    }

    #[test]
    fn details_are_looked_at_while_they_are_open() {
        let mut state = state();
        let name = "order:2".to_owned();
        assert_eq!(state.act(Action::Enter), Some(Demand::Open(Some(name.clone()))));
        state.see_details(Details { name: "order:1".to_owned(), nodes: vec![], permits: vec![] });
        assert!(state.details.is_none(), "those of another lock came late");
        state.see_details(Details { name, nodes: vec![], permits: vec![] });
        assert!(state.details.is_some());
        assert_eq!(state.act(Action::Help), None);
        assert_eq!(state.act(Action::Back), None);
        assert_eq!(state.view, View::Details("order:2".to_owned()), "the help returns to it");
        assert_eq!(state.act(Action::Back), Some(Demand::Open(None)));
        assert_eq!(state.view, View::Locks);
        state.act(Action::Enter);
        assert_eq!(state.act(Action::Filter), Some(Demand::Open(None)));
        assert_eq!(state.view, View::Locks);
    }

    #[test]
    fn odd_clients_come_first() {
        let mut state = State::default();
        let clients = vec![client("a", None), client("b", Some("quorum 4 instead of 3"))];
        state.see(snapshot(&["one"], vec![], clients));
        assert_eq!(state.odd().len(), 1);
        assert!(state.clients_shown()[0].odd.is_some());
    }

    #[test]
    fn actions_that_need_the_servers_are_demands() {
        let mut state = state();
        for (action, demand) in [
            (Action::Pause, Demand::Pause(true)),
            (Action::Pause, Demand::Pause(false)),
            (Action::Look, Demand::Look),
            (Action::Scan, Demand::Scan),
            (Action::Suspend, Demand::Suspend),
            (Action::Quit, Demand::Quit),
        ] {
            assert_eq!(state.act(action), Some(demand));
        }
    }
}
