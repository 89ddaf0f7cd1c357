//! Where the boxes of a graph go, and how its edges run between them: a layered layout.
//!
//! 1. Edges that close a cycle are taken out; they are routed aside at the end.
//! 2. Each box goes to the layer after the last of its predecessors (longest path).
//! 3. An edge that passes layers gets a point in each of them, so that boxes leave room for it.
//! 4. Boxes and points are ordered within their layers: sweeps by the mean position of their neighbours; the order with the fewest
//!    crossings wins.
//! 5. Positions: each box as near to its neighbours as the order and the distances allow. That is a least-squares fit, which has one
//!    answer.
//!
//! Pure, and the same for the same graph. What always holds: no two boxes overlap, and no edge between layers runs through a box.
//! The layout is computed with layers from left to right and turned for graphs that run down.

/// Between boxes of one layer.
const APART: f64 = 26.0;
/// Between a box and an edge that passes it.
const ASIDE: f64 = 14.0;
/// Between layers, at least.
const GAP: f64 = 46.0;
/// Around the label of an edge.
const LABEL_ROOM: f64 = 26.0;
/// Around everything.
const MARGIN: f64 = 8.0;
/// From the boxes to the first edge that runs back, and from that to the next.
const LANE: f64 = 24.0;
/// How high an edge from a box to itself is. Less than the distance between boxes.
const LOOP: f64 = 16.0;
/// How many times the order is improved. More sweeps change little in graphs that fit a screen.
const SWEEPS: usize = 12;
/// How many times positions are fitted to neighbours.
const FITS: usize = 6;

/// Where a graph runs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// From left to right.
    Right,
    /// From top to bottom.
    Down,
}

/// The size of a box.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Size {
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// An edge from one box to another, and its label.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Link {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Its width.
    pub(crate) label: f64,
}

/// A box at its place.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Place {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// How an edge runs.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Route {
    /// The path, as SVG writes it.
    pub(crate) path: String,
    /// The middle of its label.
    pub(crate) label: (f64, f64),
}

/// The layout of a graph. Places and routes are in the order of the boxes and edges.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Layout {
    pub(crate) places: Vec<Place>,
    pub(crate) routes: Vec<Route>,
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// How many layers there are.
    pub(crate) layers: usize,
}

/// Computes the layout. Edges must be between boxes that there are.
pub(crate) fn layout(sizes: &[Size], links: &[Link], flow: Flow) -> Layout {
    let turned = |size: &Size| match flow {
        Flow::Right => *size,
        Flow::Down => Size { width: size.height, height: size.width },
    };
    let sizes: Vec<Size> = sizes.iter().map(turned).collect();
    let is_back = back_links(sizes.len(), links);
    let forward: Vec<(usize, usize)> = links
        .iter()
        .zip(&is_back)
        .filter(|(_, back)| !**back)
        .map(|(link, _)| (link.from, link.to))
        .collect();
    let layer = longest_paths(sizes.len(), &forward);
    let mut grid = Grid::new(&sizes, links, &is_back, &layer);
    grid.order();
    grid.place(links, flow);
    grid.draw(links, &is_back, flow)
}

/// Which edges close a cycle, by a depth-first search from the boxes without predecessors, then from the first that is left.
fn back_links(boxes: usize, links: &[Link]) -> Vec<bool> {
    let mut leaving = vec![Vec::new(); boxes];
    let mut has_predecessor = vec![false; boxes];
    for (number, link) in links.iter().enumerate() {
        leaving[link.from].push(number);
        has_predecessor[link.to] |= link.from != link.to;
    }
    let mut is_back = vec![false; links.len()];
    let (mut is_open, mut is_closed) = (vec![false; boxes], vec![false; boxes]);
    let roots = (0..boxes).filter(|root| !has_predecessor[*root]).chain(0..boxes);
    for root in roots {
        if is_closed[root] {
            continue;
        }
        // A stack of boxes and how many of their edges were followed.
        let mut stack = vec![(root, 0)];
        is_open[root] = true;
        while let Some((at, followed)) = stack.last_mut() {
            let at = *at;
            let Some(number) = leaving[at].get(*followed).copied() else {
                (is_open[at], is_closed[at]) = (false, true);
                stack.pop();
                continue;
            };
            *followed += 1;
            let to = links[number].to;
            if is_open[to] {
                is_back[number] = true;
            } else if !is_closed[to] {
                is_open[to] = true;
                stack.push((to, 0));
            }
        }
    }
    is_back
}

/// The layer of each box: one more than that of the last predecessor.
fn longest_paths(boxes: usize, forward: &[(usize, usize)]) -> Vec<usize> {
    let mut layer = vec![0; boxes];
    let mut missing = vec![0; boxes];
    let mut leaving = vec![Vec::new(); boxes];
    for (from, to) in forward {
        missing[*to] += 1;
        leaving[*from].push(*to);
    }
    let mut ready: Vec<usize> = (0..boxes).filter(|b| missing[*b] == 0).collect();
    while let Some(from) = ready.pop() {
        for to in &leaving[from] {
            layer[*to] = layer[*to].max(layer[from] + 1);
            missing[*to] -= 1;
            if missing[*to] == 0 {
                ready.push(*to);
            }
        }
    }
    layer
}

/// The neighbours that a layer is fitted to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Near {
    Nothing,
    Before,
    After,
    Both,
}

/// Something in a layer: a box, or the point of an edge that passes.
#[derive(Clone, Debug)]
struct Cell {
    is_box: bool,
    /// Its size across its layer.
    across: f64,
    /// Its size along the flow.
    along: f64,
    before: Vec<usize>,
    after: Vec<usize>,
    /// The middle, across.
    middle: f64,
}

/// The cells in their layers. The first cells are the boxes.
struct Grid {
    cells: Vec<Cell>,
    layers: Vec<Vec<usize>>,
    layer_of: Vec<usize>,
    /// The cells through which each edge runs, from its box to its box; empty if it runs back.
    chains: Vec<Vec<usize>>,
    /// Where each layer begins and ends, along the flow.
    bounds: Vec<(f64, f64)>,
}

impl Grid {
    fn new(sizes: &[Size], links: &[Link], is_back: &[bool], layer: &[usize]) -> Grid {
        let count = layer.iter().map(|layer| layer + 1).max().unwrap_or(0);
        let cell = |is_box, across, along| Cell {
            is_box,
            across,
            along,
            before: Vec::new(),
            after: Vec::new(),
            middle: 0.0,
        };
        let mut cells: Vec<Cell> = sizes.iter().map(|size| cell(true, size.height, size.width)).collect();
        let mut layers = vec![Vec::new(); count];
        let mut layer_of = layer.to_vec();
        for (number, layer) in layer.iter().enumerate() {
            layers[*layer].push(number);
        }
        let mut chains = vec![Vec::new(); links.len()];
        for (number, link) in links.iter().enumerate().filter(|(number, _)| !is_back[*number]) {
            let mut chain = vec![link.from];
            let first = layer[link.from] + 1;
            for (passed, members) in layers[first..layer[link.to]].iter_mut().enumerate() {
                cells.push(cell(false, 2.0, 0.0));
                layer_of.push(first + passed);
                members.push(cells.len() - 1);
                chain.push(cells.len() - 1);
            }
            chain.push(link.to);
            for pair in chain.windows(2) {
                cells[pair[0]].after.push(pair[1]);
                cells[pair[1]].before.push(pair[0]);
            }
            chains[number] = chain;
        }
        Grid { cells, layers, layer_of, chains, bounds: Vec::new() }
    }

    /// Orders the layers so that few edges cross.
    fn order(&mut self) {
        let mut best = (self.crossings(), self.layers.clone());
        for sweep in 0..SWEEPS {
            let forth = sweep % 2 == 0;
            let numbers: Vec<usize> = match forth {
                true => (1..self.layers.len()).collect(),
                false => (0..self.layers.len().saturating_sub(1)).rev().collect(),
            };
            for number in numbers {
                let positions = self.positions();
                let mut layer = std::mem::take(&mut self.layers[number]);
                let key = |number: &usize| {
                    let cell = &self.cells[*number];
                    let near = if forth { &cell.before } else { &cell.after };
                    mean(near.iter().map(|other| positions[*other] as f64))
                        .unwrap_or(positions[*number] as f64)
                };
                // Stable: equals stay as they are.
                layer.sort_by(|a, b| key(a).total_cmp(&key(b)));
                self.layers[number] = layer;
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.layers.clone());
            }
        }
        self.layers = best.1;
    }

    /// The position of each cell within its layer.
    fn positions(&self) -> Vec<usize> {
        let mut positions = vec![0; self.cells.len()];
        for layer in &self.layers {
            for (position, cell) in layer.iter().enumerate() {
                positions[*cell] = position;
            }
        }
        positions
    }

    fn crossings(&self) -> usize {
        let positions = self.positions();
        let mut crossings = 0;
        for layer in &self.layers {
            let edges: Vec<(usize, usize)> = layer
                .iter()
                .flat_map(|from| self.cells[*from].after.iter().map(|to| (positions[*from], positions[*to])))
                .collect();
            for (number, (from, to)) in edges.iter().enumerate() {
                let crosses = |(f, t): &&(usize, usize)| (f < from && t > to) || (f > from && t < to);
                crossings += edges[number + 1..].iter().filter(crosses).count();
            }
        }
        crossings
    }

    /// Gives each cell its place.
    fn place(&mut self, links: &[Link], flow: Flow) {
        self.fit_all(Near::Nothing);
        for _ in 0..FITS {
            self.fit_all(Near::Before);
            self.fit_all(Near::After);
        }
        self.fit_all(Near::Both);
        let mut at = 0.0;
        for (number, layer) in self.layers.iter().enumerate() {
            let depth = layer.iter().map(|cell| self.cells[*cell].along).fold(0.0, f64::max);
            self.bounds.push((at, at + depth));
            // A label needs its room along the flow only if that is the direction of text.
            let leaves = |link: &&Link| {
                self.layer_of[link.from] == number && self.layer_of[link.to] > number && flow == Flow::Right
            };
            let label = links.iter().filter(leaves).map(|link| link.label + LABEL_ROOM).fold(GAP, f64::max);
            at += depth + label;
        }
    }

    /// Fits all layers, beginning where the neighbours in question are already in place.
    fn fit_all(&mut self, near: Near) {
        for number in 0..self.layers.len() {
            match near {
                Near::After => self.fit(self.layers.len() - 1 - number, near),
                _ => self.fit(number, near),
            }
        }
    }

    /// Moves the cells of a layer as near to the mean of their neighbours as their order and distances allow. A cell without neighbours
    /// stays.
    fn fit(&mut self, number: usize, near: Near) {
        let layer = &self.layers[number];
        let mut offset = 0.0;
        // For each cell where it would be alone, how much that weighs, and its distance from the first.
        let mut wanted = Vec::with_capacity(layer.len());
        let mut offsets = Vec::with_capacity(layer.len());
        for (position, cell) in layer.iter().enumerate() {
            let cell = &self.cells[*cell];
            if let Some(before) = position.checked_sub(1).map(|before| &self.cells[layer[before]]) {
                let gap = if before.is_box && cell.is_box { APART } else { ASIDE };
                offset += (before.across + cell.across) / 2.0 + gap;
            }
            let (before, after): (&[usize], &[usize]) = match near {
                Near::Nothing => (&[], &[]),
                Near::Before => (&cell.before, &[]),
                Near::After => (&[], &cell.after),
                Near::Both => (&cell.before, &cell.after),
            };
            let stays = if near == Near::Nothing { offset } else { cell.middle };
            let middle = |other: &usize| self.cells[*other].middle;
            let target = mean(before.iter().chain(after).map(middle)).unwrap_or(stays);
            // The points of an edge weigh more, so that it runs straight.
            wanted.push((target - offset, if cell.is_box { 1.0 } else { 4.0 }));
            offsets.push(offset);
        }
        let fitted = isotonic(&wanted);
        for (position, cell) in layer.iter().enumerate() {
            self.cells[*cell].middle = fitted[position] + offsets[position];
        }
    }

    fn draw(&self, links: &[Link], is_back: &[bool], flow: Flow) -> Layout {
        let mut routes: Vec<Vec<Piece>> = self.chains.iter().map(|chain| self.forward(chain)).collect();
        let labels = self.back(links, is_back, &mut routes);
        // The extent across: boxes, edges and labels.
        let mut low = f64::MAX;
        let mut high = f64::MIN;
        for cell in &self.cells {
            low = low.min(cell.middle - cell.across / 2.0);
            high = high.max(cell.middle + cell.across / 2.0);
        }
        for piece in routes.iter().flatten() {
            low = low.min(piece.1.1 - MARGIN);
            high = high.max(piece.1.1 + MARGIN);
        }
        let labels: Vec<(f64, f64)> =
            routes.iter().zip(&labels).map(|(pieces, label)| middle(pieces, *label)).collect();
        for ((_, across), link) in labels.iter().zip(links) {
            let half = match flow {
                Flow::Right => MARGIN,
                Flow::Down => link.label / 2.0,
            };
            low = low.min(across - half);
            high = high.max(across + half);
        }
        if self.cells.is_empty() {
            (low, high) = (0.0, 0.0);
        }
        let (before, after) = self.overhangs(links, is_back);
        let moved = |(along, across): (f64, f64)| {
            let (along, across) = (along + before + MARGIN, across - low + MARGIN);
            match flow {
                Flow::Right => (along, across),
                Flow::Down => (across, along),
            }
        };
        let place = |(number, cell): (usize, &Cell)| {
            let (begin, end) = self.bounds[self.layer_of[number]];
            let along = (begin + end - cell.along) / 2.0;
            let (x, y) = moved((along, cell.middle - cell.across / 2.0));
            let (width, height) = match flow {
                Flow::Right => (cell.along, cell.across),
                Flow::Down => (cell.across, cell.along),
            };
            Place { x, y, width, height }
        };
        let places = self.cells.iter().enumerate().filter(|(_, cell)| cell.is_box).map(place).collect();
        let route = |(pieces, label): (&Vec<Piece>, &(f64, f64))| Route {
            path: path(pieces, flow, moved),
            label: moved(*label),
        };
        let end = self.bounds.last().map_or(0.0, |(_, end)| *end);
        let (along, across) = (before + end + after + 2.0 * MARGIN, high - low + 2.0 * MARGIN);
        let (width, height) = match flow {
            Flow::Right => (along, across),
            Flow::Down => (across, along),
        };
        let routes = routes.iter().zip(&labels).map(route).collect();
        Layout { places, routes, width, height, layers: self.layers.len() }
    }

    /// Room before the first layer and after the last, for edges that run back and cannot go straight to the side.
    fn overhangs(&self, links: &[Link], is_back: &[bool]) -> (f64, f64) {
        let last = self.layers.len().saturating_sub(1);
        let aside = |link: &&Link, number: usize, layer: usize| {
            link.from != link.to && self.layer_of[number] == layer && !self.is_first(number)
        };
        let back = || links.iter().zip(is_back).filter(|(_, back)| **back).map(|(link, _)| link);
        let room = |is_used: bool| if is_used { GAP / 2.0 } else { 0.0 };
        (
            room(back().any(|link| aside(&link, link.to, 0))),
            room(back().any(|link| aside(&link, link.from, last))),
        )
    }

    /// Through the points of an edge: straight within the layers that it passes, curved between layers.
    fn forward(&self, chain: &[usize]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (position, number) in chain.iter().enumerate() {
            let cell = &self.cells[*number];
            let (begin, end) = self.bounds[self.layer_of[*number]];
            let (begin, end) = match cell.is_box {
                true => ((begin + end - cell.along) / 2.0, (begin + end + cell.along) / 2.0),
                false => (begin, end),
            };
            if position > 0 {
                pieces.push(Piece(Bend::Curve, (begin, cell.middle)));
            }
            if position == 0 {
                pieces.push(Piece(Bend::Start, (end, cell.middle)));
            } else if position + 1 < chain.len() {
                pieces.push(Piece(Bend::Line, (end, cell.middle)));
            }
        }
        pieces
    }

    /// Whether a box is the first of its layer's boxes: nothing but edges is between it and the side where edges run back.
    fn is_first(&self, number: usize) -> bool {
        let layer = &self.layers[self.layer_of[number]];
        layer.iter().find(|cell| self.cells[**cell].is_box) == Some(&number)
    }

    /// Routes the edges that run back at the side of the first boxes, the short ones nearest. Returns where their labels are.
    fn back(&self, links: &[Link], is_back: &[bool], routes: &mut [Vec<Piece>]) -> Vec<Option<(f64, f64)>> {
        let mut labels = vec![None; links.len()];
        let mut order: Vec<usize> = (0..links.len()).filter(|number| is_back[*number]).collect();
        let distance = |number: &usize| {
            let link = &links[*number];
            self.layer_of[link.from].abs_diff(self.layer_of[link.to])
        };
        order.sort_by_key(|number| (distance(number), *number));
        // The layers that lanes span, and where they are across.
        let mut lanes: Vec<(usize, usize, f64)> = Vec::new();
        for number in order {
            let Link { from, to, .. } = links[number];
            if from == to {
                let cell = &self.cells[from];
                let lane = cell.middle - cell.across / 2.0 - LOOP;
                let (begin, end) = self.bounds[self.layer_of[from]];
                routes[number] = self.around(from, to, lane);
                labels[number] = Some(((begin + end) / 2.0, lane));
                continue;
            }
            let (first, last) = (self.layer_of[to], self.layer_of[from]);
            let (first, last) = (first.min(last), first.max(last));
            let edge = |cell: &usize| self.cells[*cell].middle - self.cells[*cell].across / 2.0;
            let boxes = self.layers[first..=last].iter().flatten();
            let mut lane = boxes.map(edge).fold(f64::MAX, f64::min) - LANE;
            for (begin, end, taken) in &lanes {
                if *begin <= last && first <= *end {
                    lane = lane.min(taken - LANE);
                }
            }
            lanes.push((first, last, lane));
            let pieces = self.around(from, to, lane);
            let alongs: Vec<f64> = pieces.iter().map(|piece| piece.1.0).collect();
            let ends = alongs.iter().fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
            labels[number] = Some(((ends.0 + ends.1) / 2.0, lane));
            routes[number] = pieces;
        }
        labels
    }

    /// From a box to an earlier one, or to itself, along a lane.
    fn around(&self, from: usize, to: usize, lane: f64) -> Vec<Piece> {
        let side = |number: usize, leaves: bool| {
            let cell = &self.cells[number];
            let (begin, end) = self.bounds[self.layer_of[number]];
            let middle = (begin + end) / 2.0;
            let shift = if from == to { cell.along / 4.0 } else { cell.along / 6.0 };
            match (self.is_first(number) || from == to, leaves) {
                // Straight from its side, or to it.
                (true, true) => (middle + shift, cell.middle - cell.across / 2.0, middle + shift),
                (true, false) => (middle - shift, cell.middle - cell.across / 2.0, middle - shift),
                // By way of the gap after the layer, or before it: boxes are in between.
                (false, true) => (middle + cell.along / 2.0, cell.middle, end + GAP / 3.0),
                (false, false) => (middle - cell.along / 2.0, cell.middle, begin - GAP / 3.0),
            }
        };
        let ((x1, y1, up), (x2, y2, down)) = (side(from, true), side(to, false));
        let mut pieces = vec![Piece(Bend::Start, (x1, y1))];
        if up != x1 {
            pieces.push(Piece(Bend::Corner, (up, y1)));
        }
        pieces.push(Piece(Bend::Corner, (up, lane)));
        pieces.push(Piece(Bend::Corner, (down, lane)));
        if down != x2 {
            pieces.push(Piece(Bend::Corner, (down, y2)));
        }
        pieces.push(Piece(Bend::Line, (x2, y2)));
        pieces
    }
}

/// The next point of an edge, and how it gets there. Points are along the flow and across.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Piece(Bend, (f64, f64));

#[derive(Clone, Copy, PartialEq, Debug)]
enum Bend {
    Start,
    Line,
    /// An S that begins and ends along the flow.
    Curve,
    /// A line to a corner, which is rounded.
    Corner,
}

/// Where the label of an edge is: where it has room, or in the middle of its first piece.
fn middle(pieces: &[Piece], label: Option<(f64, f64)>) -> (f64, f64) {
    label.unwrap_or_else(|| match pieces {
        [Piece(_, from), Piece(_, to), ..] => ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0),
        _ => (0.0, 0.0),
    })
}

/// The path of an edge, as SVG writes it.
fn path(pieces: &[Piece], flow: Flow, moved: impl Fn((f64, f64)) -> (f64, f64)) -> String {
    let mut path = String::new();
    let mut last = (0.0, 0.0);
    for (position, Piece(bend, point)) in pieces.iter().enumerate() {
        let (x, y) = moved(*point);
        match bend {
            Bend::Start => path += &format!("M{x:.1} {y:.1}"),
            Bend::Line => path += &format!("L{x:.1} {y:.1}"),
            Bend::Curve => {
                let half = match flow {
                    Flow::Right => (x - last.0) / 2.0,
                    Flow::Down => (y - last.1) / 2.0,
                };
                let ((x1, y1), (x2, y2)) = match flow {
                    Flow::Right => ((last.0 + half, last.1), (x - half, y)),
                    Flow::Down => ((last.0, last.1 + half), (x, y - half)),
                };
                path += &format!("C{x1:.1} {y1:.1} {x2:.1} {y2:.1} {x:.1} {y:.1}");
            }
            Bend::Corner => {
                let (nx, ny) = pieces.get(position + 1).map_or((x, y), |piece| moved(piece.1));
                let toward = |(ax, ay): (f64, f64), (bx, by): (f64, f64), most: f64| {
                    let distance = (bx - ax).hypot(by - ay).max(0.001);
                    let part = (most.min(distance / 2.0)) / distance;
                    (ax + (bx - ax) * part, ay + (by - ay) * part)
                };
                let (x1, y1) = toward((x, y), last, 9.0);
                let (x2, y2) = toward((x, y), (nx, ny), 9.0);
                path += &format!("L{x1:.1} {y1:.1}Q{x:.1} {y:.1} {x2:.1} {y2:.1}");
            }
        }
        last = (x, y);
    }
    path
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    (count > 0.0).then(|| sum / count)
}

/// The increasing sequence that is nearest to these targets, by least squares with weights: neighbours that are in the wrong order
/// are pooled.
fn isotonic(wanted: &[(f64, f64)]) -> Vec<f64> {
    // Pools: their mean, weight and length.
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for (target, weight) in wanted {
        pools.push((*target, *weight, 1));
        while let [.., (first, first_weight, first_count), (second, second_weight, second_count)] =
            pools.as_slice()
            && first > second
        {
            let weight = first_weight + second_weight;
            let pooled = (
                (first * first_weight + second * second_weight) / weight,
                weight,
                first_count + second_count,
            );
            pools.truncate(pools.len() - 2);
            pools.push(pooled);
        }
    }
    pools.iter().flat_map(|(mean, _, count)| std::iter::repeat_n(*mean, *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(pairs: &[(usize, usize)]) -> Vec<Link> {
        pairs.iter().map(|(from, to)| Link { from: *from, to: *to, label: 0.0 }).collect()
    }

    fn boxes(count: usize) -> Vec<Size> {
        (0..count).map(|n| Size { width: 80.0 + (n % 3) as f64 * 30.0, height: 32.0 }).collect()
    }

    fn overlap(a: &Place, b: &Place) -> bool {
        a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
    }

    fn assert_sound(layout: &Layout) {
        for (number, place) in layout.places.iter().enumerate() {
            for other in &layout.places[number + 1..] {
                assert!(!overlap(place, other), "{place:?} overlaps {other:?}");
            }
            assert!(place.x >= 0.0 && place.y >= 0.0, "{place:?}");
            assert!(
                place.x + place.width <= layout.width && place.y + place.height <= layout.height,
                "{place:?}"
            );
        }
        // Points of edges are inside, and none is inside a box.
        for route in &layout.routes {
            for (x, y) in points(&route.path) {
                assert!((0.0..=layout.width).contains(&x) && (0.0..=layout.height).contains(&y), "{route:?}");
                let within = |place: &&Place| {
                    place.x + 0.2 < x
                        && x < place.x + place.width - 0.2
                        && place.y + 0.2 < y
                        && y < place.y + place.height - 0.2
                };
                assert!(!layout.places.iter().any(|place| within(&place)), "{route:?}");
            }
        }
    }

    /// The points of a path, with those that control its curves.
    fn points(path: &str) -> Vec<(f64, f64)> {
        let numbers: Vec<f64> = path
            .split(|c: char| c.is_ascii_alphabetic() || c == ' ')
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().expect("a number"))
            .collect();
        numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect()
    }

    #[test]
    fn a_chain_is_a_straight_line() {
        let layout = layout(&boxes(4), &links(&[(0, 1), (1, 2), (2, 3)]), Flow::Right);
        assert_sound(&layout);
        assert_eq!(layout.layers, 4);
        let middles: Vec<f64> = layout.places.iter().map(|place| place.y + place.height / 2.0).collect();
        assert!(middles.iter().all(|middle| (middle - middles[0]).abs() < 0.01), "{middles:?}");
        assert!(layout.places.windows(2).all(|pair| pair[0].x + pair[0].width + GAP - 0.1 < pair[1].x));
    }

    #[test]
    fn edges_that_pass_a_layer_leave_its_boxes_alone() {
        let diamond = links(&[(0, 1), (1, 2), (2, 3), (0, 3)]);
        for flow in [Flow::Right, Flow::Down] {
            assert_sound(&layout(&boxes(4), &diamond, flow));
        }
    }

    #[test]
    fn cycles_loops_and_double_edges_are_laid_out() {
        let pairs = [(0, 1), (1, 2), (2, 1), (2, 0), (1, 1), (1, 2), (2, 3), (3, 0)];
        for flow in [Flow::Right, Flow::Down] {
            let layout = layout(&boxes(4), &links(&pairs), flow);
            assert_sound(&layout);
            assert!(layout.routes.iter().all(|route| route.path.starts_with('M')));
        }
        assert_eq!(
            back_links(4, &links(&pairs)),
            [false, false, true, true, true, false, false, true],
            "they close cycles"
        );
    }

    #[test]
    fn lanes_of_edges_that_run_back_do_not_lie_on_each_other() {
        let layout =
            layout(&boxes(4), &links(&[(0, 1), (1, 2), (2, 3), (3, 2), (3, 1), (3, 0)]), Flow::Right);
        let mut lanes: Vec<i64> = layout.routes[3..].iter().map(|route| route.label.1 as i64).collect();
        lanes.dedup();
        assert_eq!(lanes.len(), 3, "{lanes:?}");
    }

    #[test]
    fn a_crossing_that_can_be_avoided_is_avoided() {
        let pairs = links(&[(0, 2), (0, 3), (1, 4), (2, 7), (3, 5), (4, 6)]);
        let is_back = back_links(8, &pairs);
        let forward: Vec<(usize, usize)> = pairs.iter().map(|link| (link.from, link.to)).collect();
        let mut grid = Grid::new(&boxes(8), &pairs, &is_back, &longest_paths(8, &forward));
        grid.order();
        assert_eq!(grid.crossings(), 0);
    }

    #[test]
    fn any_graph_is_sound_and_always_the_same() {
        // A linear congruential generator: the same graphs in every run.
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..300 {
            let count = 1 + random(14);
            let pairs: Vec<(usize, usize)> =
                (0..random(24)).map(|_| (random(count), random(count))).collect();
            let flow = if random(2) == 0 { Flow::Right } else { Flow::Down };
            let first = layout(&boxes(count), &links(&pairs), flow);
            assert_sound(&first);
            assert_eq!(first, layout(&boxes(count), &links(&pairs), flow));
        }
    }

    #[test]
    fn nothing_is_laid_out_as_nothing() {
        let layout = layout(&[], &[], Flow::Right);
        assert_eq!((layout.places.len(), layout.layers), (0, 0));
    }

    #[test]
    fn positions_are_fitted_in_their_order() {
        assert_eq!(isotonic(&[(1.0, 1.0), (3.0, 1.0), (2.0, 1.0)]), [1.0, 2.5, 2.5]);
        assert_eq!(isotonic(&[(4.0, 3.0), (0.0, 1.0)]), [3.0, 3.0]);
    }
}
