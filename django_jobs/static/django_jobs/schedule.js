'use strict';
// The preview follows the form as it is edited. The server makes it of the form's values, and stores nothing.
document.addEventListener('DOMContentLoaded', function() {
    const preview = document.getElementById('preview');
    const form = preview && preview.closest('form');
    if (!form) {
        return;
    }
    const shown = preview.querySelector('.dj-preview');
    let timer = null;
    let asked = null;

    function say(text) {
        shown.textContent = '';
        const line = shown.appendChild(document.createElement('p'));
        line.className = 'errornote';
        line.textContent = text;
    }

    async function ask() {
        asked = new AbortController();
        const own = asked;
        try {
            const answer = await fetch(preview.dataset.url, {
                method: 'POST', body: new FormData(form), credentials: 'same-origin', redirect: 'error', signal: own.signal
            });
            if (!answer.ok) {
                throw new Error(answer.status);
            }
            const text = await answer.text();
            if (own === asked) {
                shown.innerHTML = text;
            }
        } catch (error) {
            if (own === asked) {
                say(preview.dataset.failed);
            }
        }
        if (own === asked) {
            preview.classList.remove('dj-waits');
        }
    }

    function edited() {
        clearTimeout(timer);
        if (asked) {
            const old = asked;
            asked = null;
            old.abort();
        }
        preview.classList.add('dj-waits');
        timer = setTimeout(ask, 300);
    }

    form.addEventListener('input', edited);
    form.addEventListener('change', edited);
});
