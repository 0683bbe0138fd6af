'use strict';
// The page is asked for again every few seconds, and what it shows now takes the place of what it showed.
document.addEventListener('DOMContentLoaded', function() {
    const overview = document.getElementById('overview');
    if (!overview) {
        return;
    }
    let isPaused = false;
    let isAsking = false;
    let askedAt = Date.now();

    function interval() {
        return 1000 * Number(overview.querySelector('[data-refresh]').dataset.refresh);
    }

    function button() {
        const found = overview.querySelector('.dj-refreshing');
        found.hidden = false;
        found.textContent = isPaused ? overview.dataset.goOn : overview.dataset.pause;
        found.setAttribute('aria-pressed', isPaused);
    }

    function show(text) {
        const now = new DOMParser().parseFromString(text, 'text/html').getElementById('overview');
        if (!now) {
            throw new Error('this is another page');
        }
        const open = Array.from(overview.querySelectorAll('details')).map(function(found) { return found.open; });
        const scrolled = Array.from(overview.querySelectorAll('.dj-wide')).map(function(found) { return found.scrollLeft; });
        const focused = overview.contains(document.activeElement) && document.activeElement.className;
        overview.replaceChildren(...now.childNodes);
        overview.querySelectorAll('details').forEach(function(found, place) { found.open = Boolean(open[place]); });
        overview.querySelectorAll('.dj-wide').forEach(function(found, place) { found.scrollLeft = scrolled[place] || 0; });
        button();
        if (focused && focused.includes('dj-refreshing')) {
            overview.querySelector('.dj-refreshing').focus();
        }
    }

    function say(text) {
        const line = overview.querySelector('.dj-failed-to') || overview.querySelector('.dj-bar-of-page').appendChild(document.createElement('span'));
        line.className = 'dj-failed-to';
        line.setAttribute('role', 'status');
        line.textContent = text;
    }

    async function ask() {
        isAsking = true;
        askedAt = Date.now();
        try {
            const answer = await fetch(window.location.href, {credentials: 'same-origin', redirect: 'error', cache: 'no-store'});
            if (!answer.ok) {
                throw new Error(answer.status);
            }
            const text = await answer.text();
            if (!isPaused) {
                show(text);
            }
        } catch (error) {
            say(overview.dataset.failed);
        }
        isAsking = false;
    }

    // Somebody may be about to act on what is shown, with the keyboard too.
    function isHeld() {
        const at = document.activeElement;
        return isPaused || isAsking || document.hidden || overview.querySelector('form[data-sent]') ||
            (at && overview.contains(at) && !at.classList.contains('dj-refreshing') && at.matches(':focus-visible'));
    }

    overview.addEventListener('click', function(event) {
        if (event.target.closest('.dj-refreshing')) {
            isPaused = !isPaused;
            button();
        }
    });
    button();
    setInterval(function() {
        if (!isHeld() && Date.now() - askedAt >= interval()) {
            ask();
        }
    }, 500);
});
