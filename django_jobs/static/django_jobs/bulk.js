'use strict';
// Shows how far an act is, every two seconds while it goes on. Without it the page is loaded anew by itself.
document.addEventListener('DOMContentLoaded', function() {
    const live = document.getElementById('dj-bulk-live');
    const trouble = document.querySelector('.dj-bulk-trouble');
    if (!live) {
        return;
    }
    function put(page, selector) {
        const here = document.querySelector(selector);
        const there = page.querySelector(selector);
        if (here && there && here.innerHTML !== there.innerHTML) {
            here.innerHTML = there.innerHTML;
            here.hidden = there.hidden;
        }
    }
    async function look() {
        try {
            const answer = await fetch(location.href, {headers: {'X-Requested-With': 'XMLHttpRequest'}});
            const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
            const fresh = page.getElementById('dj-bulk-live');
            if (!answer.ok || !fresh) {
                throw new Error(answer.status);
            }
            trouble.hidden = true;
            if (fresh.dataset.state !== live.dataset.state) {
                location.reload(); // with other buttons
                return;
            }
            ['#dj-bulk-live', '#facts', '#refusals'].forEach(function(selector) {
                put(page, selector);
            });
        } catch {
            trouble.textContent = live.dataset.failed;
            trouble.hidden = false;
        }
        setTimeout(look, 2000);
    }
    if (live.dataset.goes === 'yes') {
        setTimeout(look, 1000);
    }
});
