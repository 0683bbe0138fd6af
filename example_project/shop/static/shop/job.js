'use strict';
// Brings the job's state up to date until the job has ended.
const state = document.getElementById('state');

async function refresh() {
    if (state.querySelector('[data-ended]')) {
        return;
    }
    try {
        const answer = await fetch(state.dataset.from);
        if (answer.ok) {
            state.innerHTML = await answer.text();
        }
    } catch {
        // The demo was ended, or is being: ask again.
    }
    setTimeout(refresh, 500);
}
refresh();
